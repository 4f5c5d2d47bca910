"""How values of a library are written; each module loads when such a value is first met."""
