# The public names; the package loads each one when it is first used.
from . import schedule as schedule
from .reporting import compare as compare
from .storage import load as load
from .storage import to_disk as to_disk
