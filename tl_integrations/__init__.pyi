# The public names; the package loads each one when it is first used.
