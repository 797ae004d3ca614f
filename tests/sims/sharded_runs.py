"""What each of several processes does in ``test_sharded``: python -m torch.distributed.run ... this file FOLDER.

The folder has the configurations by name. Each is trained over the processes, with a checkpoint behind its last step;
from a checkpoint that is there the run goes on, and what is called "killed" is killed behind step 3, with a
checkpoint behind step 2.
"""

import json
import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path

import torch

from depthlaw.sims.training.sharded import start
from depthlaw.sims.training.train import TrainConfig, train
from tests.sims.training import Killed, killed_at

CONFIGS = "configs.pickle"


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    processes = start("cpu")
    configs: dict[str, TrainConfig] = pickle.loads((folder / CONFIGS).read_bytes())
    for name, config in configs.items():
        place = folder / name
        if name == "killed":
            with suppress(Killed):
                train(config, processes=processes, checkpoint=place, checkpoint_every=2, advance=killed_at(3))
            continue
        result = train(config, processes=processes, checkpoint=place, checkpoint_every=config.num_steps)
        if processes.rank == 0:
            place.with_suffix(".json").write_text(json.dumps(result.plain()), encoding="utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # threads of gloo that still want the interpreter abort one that takes its time to end
