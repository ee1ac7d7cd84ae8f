"""Train an existing DistributedDataParallel script with an all-reduce of simnet.

```python
model = DistributedDataParallel(model)
model.register_comm_hook(None, realrun.ddp_hook(algorithm="torus2d"))
```
"""

# No postponed annotations here: DistributedDataParallel compares a hook's annotations with types.

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]

from realrun.collectives import all_reduce

Hook = Callable[[object, GradBucket], torch.futures.Future[torch.Tensor]]


def ddp_hook(*, algorithm: str = "ring", group: dist.ProcessGroup | None = None, **settings: Any) -> Hook:
    """Return a hook that averages every gradient bucket with `algorithm` while the backward pass goes on.

    Parameters
    ----------
    group : the model's process group, where it is not the default one; torch's own hooks take it as the state they
        are registered with, and so does this one.
    settings : as for `all_reduce`: reduce_dtype, timeout, checks, and the algorithm's own options.
    """

    def hook(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        over = state if group is None and isinstance(state, dist.ProcessGroup) else group
        handle = all_reduce(bucket.buffer(), "avg", over, True, algorithm=algorithm, **settings)
        assert handle is not None
        return handle.get_future()

    return hook
