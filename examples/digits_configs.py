"""The digit networks as choices on the command line: `model=mlp`, or `model=conv model.depth=3`.

`L.wrap` makes calls of code recordable that knows nothing of this package; configs made of it, as YAML, build
where only Hydra is installed. For a builder of your own, `@L.configurable` does the same.
"""

import digits_models

from tl_integrations import language as L

DigitClassifier = L.wrap(digits_models.DigitClassifier)

L.store(L.wrap(digits_models.mlp), group="model", name="mlp")
L.store(L.wrap(digits_models.conv), group="model", name="conv")
