"""What Hydra finds of tl_integrations in every application of the environment; its modules are imported by
Hydra's scan.
"""
