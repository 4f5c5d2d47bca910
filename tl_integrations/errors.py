"""Every exception of the package.

    TLError
    ├── CaptureError
    │   ├── SelectorError (ValueError)             a selector's text or composition is wrong
    │   │   └── UnknownNameError (LookupError)     a selector names nothing that exists
    │   ├── PredicateError (TypeError)             a user's predicate returned something else than it may
    │   ├── OptionError (ValueError)               an option has a value that it cannot have
    │   ├── RecorderStateError (RuntimeError)      a recorder was used out of order
    │   ├── RecordLookupError (KeyError)           no record under that key
    │   │   └── AmbiguousRecordError               several records under a key that must name one
    │   ├── PayloadUnavailableError (LookupError)  the payload of a record was not kept
    │   ├── PayloadOverwrittenError (RuntimeError) memory of an alias changed after it was captured
    │   ├── RecordingFailedError (RuntimeError)    the forward failed, so there is no such result
    │   ├── TraceCaptureError (RuntimeError)       a full trace failed; `.partial_trace` is what there is
    │   ├── UnsupportedModelError (TypeError)      a model that cannot be watched
    │   └── UnsupportedTensorError (TypeError)     a tensor that cannot be kept or stored
    ├── ConfigError
    │   ├── TraceError (TypeError)                 something that a config cannot express
    │   │   ├── TraceNodeError                     a recorded call was used as if it had been built
    │   │   └── TraceLeakError                     a half-built object would have left the trace
    │   ├── UntrustedTargetError (PermissionError) a `_target_` that may not run
    │   ├── ConfigTextError (ValueError)           YAML that is no safe config
    │   ├── BuildError (ValueError)                a config that cannot be built as written
    │   ├── VerifyError (AssertionError)           built by code and from the config, two things differ
    │   └── NoConfigError (LookupError)            nothing is known of how an object was built
    ├── ScheduleError (ValueError)                 a schedule's text or numbers are wrong
    └── BundleError
        ├── BundleExistsError (FileExistsError)    the path is taken
        ├── BundleNotFinalizedError (RuntimeError) the writer did not end in order
        ├── BundleCorruptError (ValueError)        bytes that are not what was written
        ├── BundleVersionError (ValueError)        a format version that this reader does not know
        ├── BundleLimitError (ValueError)          larger than a reader or writer may accept
        ├── BundleUnsafePathError (ValueError)     a name that leaves the bundle
        ├── BundleBusyError (RuntimeError)         another writer holds the bundle
        └── BundleIOError (OSError)                the file system refused

Each also is the builtin in parentheses, so code that expects that one keeps working.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class TLError(Exception):
    """Root of every error that this package raises on purpose."""

    def __str__(self) -> str:
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class CaptureError(TLError):
    """Something about watching a model."""


class SelectorError(CaptureError, ValueError):
    """A selector's text does not parse, or its parts cannot be composed."""


class UnknownNameError(SelectorError, LookupError):
    """A selector names a module, label or function that does not exist here."""


class PredicateError(CaptureError, TypeError):
    """A predicate raised, or returned something else than a bool, a CaptureSpec or None.

    Attributes:
        failures: The exceptions, in the order in which they came, up to `max_predicate_failures`.
        total_count: How many there were.
    """

    failures: tuple[Exception, ...] = ()
    total_count: int = 0

    @property
    def overflow(self) -> bool:
        """Whether there were more than `failures` holds."""
        return self.total_count > len(self.failures)


class OptionError(CaptureError, ValueError):
    """An option has a value that it cannot have."""


class RecorderStateError(CaptureError, RuntimeError):
    """A recorder was used before it was opened, after it was closed, or after it failed."""


class RecordLookupError(CaptureError, KeyError):
    """A key that no record of the recording answers to."""


class AmbiguousRecordError(RecordLookupError):
    """A key that several records answer to where one is needed."""


class PayloadUnavailableError(CaptureError, LookupError):
    """The record exists but its tensor was not kept."""


class PayloadOverwrittenError(CaptureError, RuntimeError):
    """The memory behind an aliased payload was written after the capture."""


class RecordingFailedError(CaptureError, RuntimeError):
    """A result was asked of a recording whose forward failed.

    Args:
        message: What was asked, and why there is no such result.
        code: Stable identifier of what was asked, such as `"output_forward_failed"`.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class TraceCaptureError(CaptureError, RuntimeError):
    """A full trace failed; the forward's exception is `__cause__`.

    Attributes:
        partial_trace: What had been traced until then, or None.
    """

    partial_trace: object = None


class UnsupportedModelError(CaptureError, TypeError):
    """A model that cannot be watched, with the reason."""


class UnsupportedTensorError(CaptureError, TypeError):
    """A tensor whose layout or dtype cannot be kept or stored."""


class ConfigError(TLError):
    """Something about writing, reading or building a config."""


class TraceError(ConfigError, TypeError):
    """A call or value that a config cannot express."""


class TraceNodeError(TraceError):
    """A recorded call was used as if the object existed."""


class TraceLeakError(TraceError):
    """An object built around recorded calls would have left the trace."""


class UntrustedTargetError(ConfigError, PermissionError):
    """A config names targets that may not run here."""


class ConfigTextError(ConfigError, ValueError):
    """Text that is not a safe, well-formed config."""


class BuildError(ConfigError, ValueError):
    """A config that cannot be built as it is written."""


class VerifyError(ConfigError, AssertionError):
    """An object built from its config differs from the one built by code."""


class NoConfigError(ConfigError, LookupError):
    """Nothing is known of how an object was built."""


class ScheduleError(TLError, ValueError):
    """A schedule's text, numbers or composition are wrong."""


class BundleError(TLError):
    """Something about a bundle on disk."""


class BundleExistsError(BundleError, FileExistsError):
    """The path of a new bundle is taken."""


class BundleNotFinalizedError(BundleError, RuntimeError):
    """The bundle has no manifest: its writer did not end in order."""


class BundleCorruptError(BundleError, ValueError):
    """Bytes in a bundle are not what was written."""


class BundleVersionError(BundleError, ValueError):
    """The bundle's format version is not one this reader knows."""


class BundleLimitError(BundleError, ValueError):
    """A size or count is beyond what may be read or written."""


class BundleUnsafePathError(BundleError, ValueError):
    """A name in a bundle leaves its folder or is not a regular file."""


class BundleBusyError(BundleError, RuntimeError):
    """Another writer holds the bundle."""


class BundleIOError(BundleError, OSError):
    """The file system refused a read or a write of a bundle."""


def near_names(name: str, known: Iterable[str], limit: int = 3) -> str:
    """Names close to `name`, as the middle sentence of an error message.

    Returns: `"Closest: 'a', 'b'. "`, or an empty text when nothing is near.
    """
    close = get_close_matches(name, list(known), n=limit, cutoff=0.5)
    return f"Closest: {', '.join(map(repr, close))}. " if close else ""
