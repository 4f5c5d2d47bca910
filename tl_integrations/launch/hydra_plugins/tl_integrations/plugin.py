"""Configs of `tl_integrations.configs` and of `L.store`, in every Hydra application, with no set-up."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from tl_integrations.launch.groups import PROVIDER, STORED


class TLIntegrationsSearchPath(SearchPathPlugin):
    """Registers what is stored so far and appends the package's own configs."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        STORED.register()
        search_path.append(PROVIDER, "pkg://tl_integrations.configs")
        search_path.append(PROVIDER, "tl-store://")


class StoreSource(ConfigSource):
    """`tl-store://`: entry points, made when they are chosen, and failures, raised when they are chosen."""

    def __deepcopy__(self, memo: dict[int, object]) -> "StoreSource":
        # Hydra copies its sources, and behind this one the whole ConfigStore, before it composes: what was
        # stored since the last time must be in by now.
        STORED.catch_up()
        return self

    @staticmethod
    def scheme() -> str:
        return "tl-store"

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return STORED.is_group(config_path.strip("/"))

    def is_config(self, config_path: str) -> bool:
        return STORED.is_config(config_path.strip("/").removesuffix(".yaml"))

    def load_config(self, config_path: str) -> ConfigResult:
        option = STORED.load(config_path.strip("/").removesuffix(".yaml"))
        return ConfigResult(
            provider=self.provider,
            path=self.full_path(),
            config=OmegaConf.create(option.body),
            header={"package": option.package},
        )

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        group = config_path.strip("/")
        options = set() if results_filter == ObjectType.GROUP else STORED.options(group)
        subgroups = set() if results_filter == ObjectType.CONFIG else STORED.subgroups(group)
        return sorted(options | subgroups)
