"""Names that no config may reach, whatever list allows them: they run text, files or the system.

Hydra keeps such a list too and refuses at build time. Ours covers what Hydra refuses, so that a trace fails
where it is written, and what was seen to slip through: loaders that unpickle, openers, the environment, code
that runs on import.
"""

import re

_RUNS = "it can run code that a config chooses"
_TOUCHES = "it reaches files, processes or the network"
_READS = "it reaches into the running interpreter"
_LOADS = "it loads files that can hold code"

_MODULES = {
    _TOUCHES: """
        os posix nt posixpath ntpath genericpath subprocess shutil pty tempfile glob io _io _pyio
        fileinput socket _socket ssl ftplib smtplib imaplib poplib http urllib.request urllib.robotparser
        webbrowser xmlrpc socketserver asyncio.subprocess asyncio.events asyncio.base_events signal
        _signal resource mmap select fcntl pwd grp sqlite3 _sqlite3 dbm zipfile tarfile zipapp venv
        ensurepip platform multiprocessing.process multiprocessing.context multiprocessing.connection
        multiprocessing.managers ctypes _ctypes cffi _cffi_backend
    """,
    _RUNS: """
        code codeop runpy importlib imp zipimport pkgutil pkg_resources timeit cProfile profile doctest
        _frozen_importlib _frozen_importlib_external unittest.mock distutils setuptools pip idlelib
        lib2to3 antigravity this multiprocessing.pool concurrent.futures threading _thread sched atexit
        hydra.core hydra._internal hydra.main hydra.experimental _testcapi
        _xxsubinterpreters numba.core sitecustomize usercustomize torch.os torch.sys torch._dynamo
        torch._inductor torch._export torch.fx torch.distributed.rpc torch.distributed.run
        torch.distributed.launcher torch.distributed.elastic torch.multiprocessing numpy.f2py
        numpy.distutils numpy.ctypeslib numpy.testing
    """,
    _READS: """
        sys gc inspect _inspect pdb bdb pydoc trace traceback tracemalloc faulthandler dis symtable ast
        annotationlib site optparse logging.config sysconfig builtins.frame
    """,
    _LOADS: """
        pickle _pickle cPickle pickletools marshal shelve dill cloudpickle copyreg joblib.load
        joblib.numpy_pickle torch.hub torch.package torch.ops torch.serialization torch.classes
        torch.utils.cpp_extension torch.utils.model_zoo torch.jit torch._C._jit torch.onnx torch.export
        torch.distributed.checkpoint numpy.lib.npyio numpy.lib.format jsonpickle ruamel yaml.constructor
    """,
}

_NAMES = {
    _RUNS: """
        builtins.eval builtins.exec builtins.compile builtins.__import__ builtins.__build_class__
        builtins.map builtins.filter operator.attrgetter operator.call operator.contains operator.delitem
        operator.getitem operator.itemgetter operator.methodcaller operator.setitem _operator.attrgetter
        _operator.call _operator.contains _operator.delitem _operator.getitem _operator.itemgetter
        _operator.methodcaller _operator.setitem builtins.classmethod builtins.staticmethod
        builtins.property builtins.type builtins.super functools.partial functools.reduce
        _functools.reduce functools.lru_cache functools.cache functools.cached_property functools.wraps
        functools.update_wrapper functools.partialmethod functools.singledispatch
        functools.singledispatchmethod itertools.accumulate itertools.dropwhile itertools.filterfalse
        itertools.groupby itertools.starmap itertools.takewhile abc.abstractmethod
        contextlib.contextmanager contextlib.asynccontextmanager types.FunctionType types.MethodType
        types.CodeType types.coroutine types.new_class types.LambdaType types.DynamicClassAttribute
        builtins.function builtins.method builtins.code types.prepare_class dataclasses.make_dataclass
        typing.get_type_hints typing._eval_type typing.ForwardRef typing.evaluate_forward_ref asyncio.run
        asyncio.runners.run hydra.utils.instantiate hydra.utils.call hydra.utils.get_class
        hydra.utils.get_method hydra.utils.get_static_method torch.compile torch.vmap
        torch.library.custom_op string.Formatter logging.Formatter logging.StrFormatStyle
        multiprocessing.Process multiprocessing.Pool
    """,
    _TOUCHES: """
        builtins.open builtins.input builtins.breakpoint builtins.exit builtins.quit _sitebuiltins.Quitter
        _sitebuiltins._Helper builtins.help builtins._Helper logging.FileHandler logging.basicConfig
        urllib.parse.urlopen
    """,
    _READS: """
        builtins.getattr builtins.setattr builtins.delattr builtins.globals builtins.locals builtins.vars
        builtins.dir builtins.memoryview builtins.object.__getattribute__ builtins.str.format
        builtins.str.format_map
    """,
    _LOADS: """
        torch.load torch.save torch.from_file torch.import_ir_module torch.UntypedStorage torch.storage
        numpy.load numpy.save numpy.savez numpy.savez_compressed numpy.savetxt numpy.loadtxt
        numpy.genfromtxt numpy.fromfile numpy.memmap numpy.fromregex numpy.DataSource numpy.ndarray.tofile
        numpy.ndarray.dump numpy.ndarray.dumps pandas.read_pickle pandas.io.pickle.read_pickle pandas.eval
    """,
}

_EXCEPTIONS = frozenset(
    {
        "yaml.safe_load",
        "yaml.safe_load_all",
        "yaml.safe_dump",
        "yaml.safe_dump_all",
        "signal.Signals",
        "inspect.Parameter.empty",
        "inspect._empty",
    }
)
_DUNDER = re.compile(r"\.__(?!main__|init__)\w+__(\.|$)")
_PATH_METHOD = re.compile(r"^pathlib\.(\w*Path)\.\w+")
_WRAPPER_METHOD = re.compile(r"(get_stack|\.__get__|\.__call__|_task_get_stack|_make_subprocess_transport)$")

_BY_MODULE = {name: reason for reason, names in _MODULES.items() for name in names.split()}
_BY_NAME = {name: reason for reason, names in _NAMES.items() for name in names.split()}


def denial(name: str) -> str | None:
    """Why `name` may not be named by a config, as a clause; None when nothing speaks against it."""
    if name in _EXCEPTIONS:
        return None
    if _DUNDER.search(name) or _WRAPPER_METHOD.search(name):
        return _READS
    if _PATH_METHOD.match(name):
        return _TOUCHES
    parts = name.split(".")
    if parts[0] == "yaml":
        return _LOADS
    for cut in range(len(parts), 0, -1):
        prefix = ".".join(parts[:cut])
        reason = _BY_NAME.get(prefix) or _BY_MODULE.get(prefix)
        if reason:
            return reason
    return None
