"""TraceCallback: capture inside the real training step, on scheduled steps only."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch.optim import Optimizer

from tl_integrations.callbacks.arguments import (
    WHICH,
    bins_of,
    known,
    ranks_of,
    refuse_by_rank,
    refuse_compiled,
    refuse_manual_replay,
    selection_of,
    statistics_of,
    whole,
)
from tl_integrations.callbacks.destinations import Destinations, bundle_path
from tl_integrations.callbacks.evaluation import EvaluationHooks
from tl_integrations.callbacks.launch_config import (
    LaunchConfig,
    keep_in_checkpoint,
    launch_config,
    log_config,
    write_resolved,
)
from tl_integrations.callbacks.parameters import ParameterWatch
from tl_integrations.callbacks.plan import log_plan
from tl_integrations.callbacks.progress import current_step, is_rehearsal, loss_of, stages_of
from tl_integrations.callbacks.run import STEP_METHODS, MonitoredRun, Policy
from tl_integrations.callbacks.samples import SampleReader
from tl_integrations.capture.captures import CaptureSummary
from tl_integrations.capture.module_tree import ModuleTree
from tl_integrations.capture.nonfinite import Origin
from tl_integrations.capture.protocols import Outcome, Sink, SinkContext, SinkFactory
from tl_integrations.capture.recording import Recording
from tl_integrations.capture.selector import Selector
from tl_integrations.errors import BundleError
from tl_integrations.launch.job import run_folder
from tl_integrations.monitor import StepMonitor
from tl_integrations.options import Budget, ReportOptions
from tl_integrations.schedule.algebra import Schedule
from tl_integrations.schedule.parsing import as_schedule
from tl_integrations.schedule.schedules import never
from tl_integrations.storage import load


class TraceCallback(EvaluationHooks):
    """Records activations inside the real training step, on scheduled steps and only then.

    Off schedule a batch costs one integer comparison and nothing is attached to the model. Training is
    bitwise what it would have been.

    Args:
        schedule: When: a Schedule, every n steps (n), a list of steps, or text as `"every(100) | at(0, 1)"`.
            A step is the number Lightning gives its loggers: optimizer steps, 0-based.
        save: What: a selector, its text, an address, a glob, or a list of these; None: every module's output.
        storage: None: nothing on disk. A path or `tl.to_disk(...)`: a `.tlspec` bundle, a relative path lying
            under the output folder of a running Hydra job. True: `trace.tlspec` in the Trainer's log folder.
        statistics: Scalars per captured activation to every logger: True for the default set, or names.
        histograms: Histograms to the loggers that can show them: True, or a number of bins.
        gradients: Also keep the gradients of the captured activations.
        stages: Which of train, validate, test and predict; default train. Sanity checking never.
        eval_batches: Which batches of each evaluation loader; default the first.
        microbatches: Which forward of an accumulated step: first, last or all.
        calls: Which call of `training_step` within a batch (LBFGS calls it again): first, last or all.
        compiled: What to do where torch.compile is in use: run the captured forward eagerly (its values may
            differ in the last bits, and its records say so), skip every capture, or raise an error.
        ranks: Which ranks keep records, or `"all"`; default rank 0.
        parameters: Gradient norm and update ratio of the parameters of the captured modules.
        history: Flight recorder: scheduled captures are only remembered, as statistics of the last `history`
            of them, until a reactive schedule fires; then they are written together with its capture.
        watch_nonfinite: Test at every step what the selected modules return, and name the first that was not
            finite, in `first_nonfinite`, in a warning and in the reason of `on_nonfinite` captures. One sum
            per module: about 2 to 4 % of a step on a CPU (tests/benchmarks/RESULTS.md).
        replay: Run a training step whose loss is not finite again before backward, with random numbers,
            buffers and metrics put back before and after, to name the op it began in. Costs each step a copy
            of the buffers and a look at the loss, for which a device is waited for. What that one step does
            beyond the model and `self.log` happens twice.
        sample_ids: Where a batch says which samples it holds: a key, a position, a function of the batch or
            its import path `"pkg.module:function"`. Captures get a record `"sample_ids"` of these integers.
        graph: Arm the full mode, so that the bundle can become a trace.
        config: What built the model: a thunk of configurable calls, or a config. None: the model's own
            record, else the Hydra job's config.
        sinks: Further destinations.
        report: How captured steps look in the loggers.
        max_captures: Stop for good after so many captured steps.
        max_bytes: Stop for good after so many bytes of kept tensors.
        on_error: `"warn"`: a failure inside the monitor disables it after one warning and training goes on.
            Mistakes in the arguments are raised before step 0 either way.

    Raises:
        ScheduleError: if `schedule` does not parse, or cannot be kept by all ranks of a compiled or sharded
            model.
        OptionError: if another argument has a value that it cannot have.
        SelectorError: at the start of the fit, if `save` names nothing in the model.
        BundleError: at the start of the fit, if the bundle's path is taken or cannot be written.

    Example:
        >>> from lightning.pytorch import Trainer
        >>> trainer = Trainer(callbacks=[TraceCallback(schedule=100, storage="run.tlspec")])  # doctest: +SKIP
    """

    def __init__(
        self,
        schedule: Schedule | int | list[int] | str = 100,
        save: Selector | str | list[str] | None = None,
        *,
        storage: SinkFactory | str | bool | None = None,
        statistics: bool | str | list[str] = True,
        histograms: bool | int = False,
        gradients: bool = False,
        stages: list[str] | None = None,
        eval_batches: list[int] | None = None,
        microbatches: Literal["first", "last", "all"] = "first",
        calls: Literal["first", "last", "all"] = "first",
        compiled: Literal["eager", "skip", "error"] = "eager",
        ranks: list[int] | str | None = None,
        parameters: bool = False,
        history: int = 0,
        watch_nonfinite: bool = False,
        replay: bool = False,
        sample_ids: str | int | Callable[[Any], Any] | None = None,
        graph: bool = False,
        config: Any = None,
        sinks: list[Sink] | None = None,
        report: ReportOptions | None = None,
        max_captures: int | None = None,
        max_bytes: int | None = None,
        on_error: Literal["raise", "warn"] = "warn",
    ) -> None:
        self.schedule: Schedule = as_schedule(schedule)
        self.save: Selector | str | list[str] | None = selection_of(save)
        self._destinations = Destinations(
            storage=storage,
            statistics=statistics_of(statistics),
            bins=bins_of(histograms),
            report=report or ReportOptions(),
            selector=self._selector,
            sinks=tuple(sinks or ()),
            ranks=ranks_of(ranks),
        )
        self._policy = Policy(
            stages=tuple(known("stages", stages or ["train"], STEP_METHODS)),
            eval_batches=tuple(whole("eval_batches", batch) for batch in eval_batches or [0]),
            microbatches=known("microbatches", [microbatches], WHICH)[0],
            calls=known("calls", [calls], WHICH)[0],
        )
        self._monitoring: dict[str, Any] = {
            "gradients": gradients,
            "graph": graph,
            "history": whole("history", history),
            "watch_nonfinite": watch_nonfinite,
            "replay": replay,
            "budget": Budget(max_captures=max_captures, max_bytes=max_bytes),
            "on_error": known("on_error", [on_error], ("raise", "warn"))[0],
        }
        self._compiled = known("compiled", [compiled], ("eager", "skip", "error"))[0]
        self._watches_parameters = parameters
        self._sample_ids = sample_ids
        self._first_nonfinite: Origin | None = None
        self._config = config
        self._run_id = uuid4().hex
        self._resumed = False
        self._past: list[CaptureSummary] = []
        self._run: MonitoredRun | None = None
        self._launch: LaunchConfig | None = None
        self._bundle: Path | None = None

    @property
    def _selector(self) -> str:
        return "**" if self.save is None else str(self.save)

    @property
    def captures(self) -> list[CaptureSummary]:
        """What was captured so far: step, stage, seconds and bytes of each."""
        return self._past + (self._run.monitor.captures if self._run is not None else [])

    @property
    def first_nonfinite(self) -> Origin | None:
        """Where the first value that was not finite was seen, as far as that is known; None: none was."""
        found = self._run.monitor.first_nonfinite if self._run is not None else None
        return self._first_nonfinite or found

    @property
    def recording(self) -> Recording:
        """The bundle as far as it is committed.

        Raises:
            BundleError: if the callback stores nothing, or has captured nothing yet.
        """
        if self._bundle is None:
            raise BundleError(
                "This callback stores nothing on disk, so there is no bundle to open. "
                "Give it `storage='run.tlspec'`."
            )
        if self._run is not None:
            self._run.monitor.flush()
        return load(self._bundle, live=True)

    @property
    def state_key(self) -> str:
        return self._generate_state_key(
            schedule=repr(self.schedule),
            save=self._selector,
            storage=str(self._destinations.storage),
            prefix=self._destinations.report.prefix,
            policy=repr(self._policy),
        )

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": self._run_id, "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._run_id = state_dict["run_id"]
        self.schedule.load_state_dict(state_dict["schedule"])
        self._resumed = True

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self._launch is not None:
            keep_in_checkpoint(self._launch, checkpoint)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._open(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        run = self._run
        # The whole off-schedule cost: two attribute chains and one comparison, about 0.1 us.
        if run is None or trainer.fit_loop.epoch_loop._batches_that_stepped < run.monitor.next_step:
            return
        self._begin_train_batch(trainer, run)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._run is not None:
            self._run.end_train_batch(loss_of(outputs))

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        if self._run is not None:
            self._run.before_optimizer_step(optimizer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A batch that `on_train_batch_start` of the module skipped has no end of its own.
        if self._run is not None and self._run.is_armed:
            self._run.abort()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        interrupted = isinstance(exception, (KeyboardInterrupt, SystemExit))
        self._close(Outcome(status="interrupted" if interrupted else "failed", reason=repr(exception)))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._close(Outcome())
        # Lightning sets these on every callback; they would keep the module alive.
        self.__dict__.pop("log", None)
        self.__dict__.pop("log_dict", None)

    def __getstate__(self) -> dict[str, Any]:
        runtime = {"_run": None, "_past": self.captures}
        return {k: v for k, v in self.__dict__.items() if k not in ("log", "log_dict")} | runtime

    def _open(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._run is not None or not stages_of(trainer).intersection(self._policy.stages):
            return
        compiled = ModuleTree(pl_module).compiled
        if compiled and self._compiled != "eager":
            refuse_compiled(pl_module, self._compiled)
            return
        refuse_by_rank(self.schedule, pl_module, trainer.world_size, compiled=compiled)
        if self._monitoring["replay"]:
            refuse_manual_replay(pl_module)
        self._launch = launch = launch_config(self._config, pl_module)
        monitor = StepMonitor(
            pl_module,
            # A schedule counts training steps; evaluation asks `eval_batches` alone.
            schedule=self.schedule if "train" in self._policy.stages else never(),
            save=self.save,
            sinks=self._destinations.of(trainer),
            context=self._context(trainer, launch),
            **self._monitoring,
        )
        self._bundle = bundle_path(self._destinations.bundle(trainer))
        if self._resumed:
            monitor.next_step = 0
        addresses = monitor.recorder.captured_modules
        parameters = ParameterWatch(pl_module, addresses) if self._watches_parameters else None
        samples = SampleReader(self._sample_ids) if self._sample_ids is not None else None
        self._run = MonitoredRun(monitor, pl_module, self._policy, parameters, samples)
        self._leave_config(trainer, launch)

    def _close(self, outcome: Outcome) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.close(outcome)
            self._first_nonfinite = self._first_nonfinite or run.monitor.first_nonfinite
            self._past += run.monitor.captures

    def _begin_eval(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._open(trainer, pl_module)

    def _begin_train_batch(self, trainer: Trainer, run: MonitoredRun) -> None:
        if self._resumed:
            self._resumed = False
            run.monitor.context = replace(run.monitor.context, resume_step=current_step(trainer))
        run.begin_train_batch(trainer)

    def _begin_eval_batch(self, trainer: Trainer, stage: str, batch: int, dataloader_idx: int) -> None:
        if self._run is not None:
            self._run.begin_eval_batch(trainer, stage, batch, dataloader_idx)

    def _end_eval_batch(self) -> None:
        if self._run is not None:
            self._run.end_eval_batch()

    def _context(self, trainer: Trainer, launch: LaunchConfig) -> SinkContext:
        return SinkContext(
            config=launch.tree,
            schedule=repr(self.schedule),
            selector=self._selector,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            ranks=tuple(sorted(self._destinations.ranks or ())),
            folder=run_folder(),
            run_id=self._run_id,
        )

    def _leave_config(self, trainer: Trainer, launch: LaunchConfig) -> None:
        if launch.source == "none":
            rank_zero_info(
                "TraceCallback knows no config of this model. Decorate its class or builder with "
                "`@L.configurable`, or give `config=`, and every bundle and run will carry it."
            )
        if trainer.is_global_zero and not is_rehearsal(trainer):
            write_resolved(launch)
            step, prefix = current_step(trainer), self._destinations.report.prefix
            log_config(launch, trainer.loggers, step)
            log_plan(trainer.loggers, self.schedule, self._selector, self._bundle, prefix, step)
