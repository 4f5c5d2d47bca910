# The public names; the package loads each one when it is first used.
from tl_integrations.storage import load as load
from tl_integrations.storage import to_disk as to_disk
