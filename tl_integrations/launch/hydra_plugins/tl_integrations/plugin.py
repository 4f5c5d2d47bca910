"""The configs of `tl_integrations.configs` in every Hydra application, with no set-up."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class TLIntegrationsSearchPath(SearchPathPlugin):
    """Appends the package's own configs."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("tl_integrations", "pkg://tl_integrations.configs")
