# The public names; the package loads each one when it is first used.
from .storage import load as load
from .storage import to_disk as to_disk
