"""Each client is the real library beside a real small model; a test is skipped where that is not installed (`make
test-peers` has an environment in which all are). What it has kept is what the file of the run has."""

import copy
import csv
import json
import logging
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import depthlaw
from depthlaw.watching.record import Run
from tests.depthlaw.watching.models import GPT, batch

pytestmark = pytest.mark.filterwarnings("ignore")
"""Of other people's packages."""


def watched(folder: Path, log: Any, *, also: Any = None) -> Run:
    """A small GPT trained three steps. also: called at each step, as a run that logs something of its own."""
    torch.manual_seed(1)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    path = folder / "run.jsonl"
    watch = depthlaw.watch(model, optimizer, probe=batch(99), to=path, every=1, budget=None, log=log)
    for step in range(3):
        _, loss = model(*batch(step))
        assert loss is not None
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss)
        if also is not None:
            also(step)
    assert not watch.has_ended
    watch.close()
    return Run.read(path)


def check(kept: Mapping[str, Mapping[int, float]], run: Run) -> None:
    """kept: by name, the values by step."""
    for role in ("fc2", "q", "embedding"):
        own = {look.step: look.roles[role].change for look in run.looks}
        assert kept[f"depthlaw/change/{role}"] == pytest.approx(own, rel=1e-6)
    assert kept["depthlaw/whole"] == pytest.approx({look.step: look.whole for look in run.looks}, rel=1e-6)


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # pyright: ignore[reportMissingImports]
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tmp_path / "events")
    run = watched(tmp_path, writer)
    writer.close()
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    names = events.Tags()["scalars"]
    assert {name.partition("/")[0] for name in names} == {"depthlaw"} | {
        f"depthlaw_{kind}" for kind in ("change", "per_rate", "weight", "step", "stream")
    }  # what TensorBoard groups cards by
    own = {name: {one.step: one.value for one in events.Scalars(name)} for name in names}
    check({name.replace("depthlaw_", "depthlaw/"): values for name, values in own.items()}, run)


def records(content: bytes) -> Iterator[bytes]:
    """Of a file of wandb, which is LevelDB's log behind a header of 7 bytes: blocks of 32 KiB, in which each part has
    a header of 7 bytes too (checksum, length and kind: whole, first, middle or last)."""
    at, block, parts = 7, 1 << 15, b""
    while at + 7 <= len(content):
        if block - at % block < 7:
            at += block - at % block
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


@pytest.mark.parametrize("own", ["nothing", "by its steps", "by other steps", "in lines", "by the module"])
def test_wandb_offline_beside_what_the_run_logs_itself(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left out, of the watch or of the run."""
    wandb = pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2  # pyright: ignore[reportMissingImports]

    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(ValueError, match=r"call wandb\.init"):
        watched(tmp_path, wandb)
    with wandb.init(project="own", mode="offline", dir=tmp_path) as client:
        also = {
            "by its steps": lambda step: client.log({"own": step}, step=step),
            "by other steps": lambda step: client.log({"own": step}, step=100 * step),
            "in lines": lambda step: client.log({"own": step}),
            "by the module": lambda step: wandb.log({"own": step}),
        }
        run = watched(tmp_path, wandb if own in ("nothing", "by the module") else client, also=also.get(own))
    wandb.teardown()  # the file is whole when the process that writes it has ended
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    kept: dict[str, dict[int, float]] = {}
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for name, value in row.items():
            kept.setdefault(name, {})[row["depthlaw/step"] if name.startswith("depthlaw/") else value] = value
    check(kept, run)
    assert own == "nothing" or [*kept["own"]] == [0, 1, 2]


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/kept.db")
    with mlflow.start_run() as client:
        run = watched(tmp_path, mlflow)
    kept = mlflow.MlflowClient()
    names = kept.get_run(client.info.run_id).data.metrics
    check({name: {m.step: m.value for m in kept.get_metric_history(client.info.run_id, name)} for name in names}, run)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate(precision: str, tmp_path: Path) -> None:
    """With a tracker of its own; the run ends in the same bits without the watch."""
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState  # pyright: ignore[reportMissingImports]
    from accelerate.tracking import GeneralTracker, on_main_process  # pyright: ignore[reportMissingImports]

    class Kept(GeneralTracker):
        name, requires_logging_directory = "kept", False

        def __init__(self) -> None:
            super().__init__()
            self.values: dict[str, dict[int, float]] = {}

        @property
        def tracker(self) -> Any:
            return self.values

        @on_main_process
        def store_init_configuration(self, values: Any) -> None:
            pass

        @on_main_process
        def log(self, values: Any, step: int | None = None, **_: Any) -> None:
            assert step is not None
            for name, value in values.items():
                self.values.setdefault(name, {})[step] = value

    def end(is_watched: bool) -> Any:
        AcceleratorState._reset_state(reset_partial_state=True)
        tracker = Kept()
        accelerator = accelerate.Accelerator(
            log_with=[tracker], mixed_precision=precision, gradient_accumulation_steps=2, cpu=True
        )
        accelerator.init_trackers("own")
        torch.manual_seed(1)
        model = GPT()
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-3))
        options = {"probe": batch(99), "to": tmp_path / "run.jsonl", "every": 1, "budget": None, "log": accelerator}
        watch = depthlaw.watch(model, optimizer, **options) if is_watched else None
        torch.manual_seed(5)
        for step in range(6):
            with accelerator.accumulate(model):
                accelerator.backward(model(*batch(step))[1])
                optimizer.step()
                optimizer.zero_grad()
            if watch is not None and accelerator.sync_gradients:
                watch.step()
        assert watch is None or not watch.has_ended
        if watch is not None:
            watch.close()
        return tracker.values, accelerator.unwrap_model(model).state_dict()

    (kept, weights), (_, plain) = end(True), end(False)
    run = Run.read(tmp_path / "run.jsonl")
    assert [look.step for look in run.looks] == [0, 1, 2]
    assert all(look.first_order == pytest.approx(look.whole, rel=0.3) for look in run.looks)
    check(kept, run)
    assert all(torch.equal(weights[name], value) for name, value in plain.items())


def test_the_trainer_of_transformers(tmp_path: Path) -> None:
    """GPT-2, with gradients of two batches added up; the run ends in the same bits without the callback."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from depthlaw.watching.hugging_face import WatchCallback

    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=8, vocab_size=17)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(config)
    twin = copy.deepcopy(model)
    ids = torch.randint(0, 17, (12, 8), generator=torch.Generator().manual_seed(3))
    data = [{"input_ids": row, "labels": row} for row in ids]
    probe = {"input_ids": ids[:2], "labels": ids[:2]}
    callback = WatchCallback(probe=probe, to=tmp_path / "run.jsonl", every=1, budget=None, limits={"fc2": 50.0})
    for own, callbacks in ((model, [callback]), (twin, [])):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            max_steps=3,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        )
        transformers.Trainer(own, arguments, train_dataset=data, callbacks=callbacks).train()
    run = Run.read(tmp_path / "run.jsonl")
    assert [look.step for look in run.looks] == [0, 1, 2]
    assert {"q", "k", "v", "out", "fc1", "fc2", "embedding"} <= run.looks[-1].roles.keys()
    assert all(look.probe_loss is not None and look.whole for look in run.looks[:2])
    assert callback.watch is not None and callback.watch.last == run.looks[-1]
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), twin.parameters(), strict=True))


def test_lightning(tmp_path: Path) -> None:
    """With two batches for each step and a logger of its own; the run ends in the same bits without the callback."""
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.loggers import CSVLogger  # pyright: ignore[reportMissingImports]

    from depthlaw.watching.lightning import WatchCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT()

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.model(ids)[0]

        def training_step(self, data: Any, _: int) -> Any:
            return self.model(data[0], data[1])[1]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-3)

    torch.manual_seed(1)
    module = Module()
    twin = copy.deepcopy(module)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    data: Any = [batch(step) for step in range(6)]
    logger = CSVLogger(tmp_path, name="kept")
    callback = WatchCallback(
        probe=batch(99)[0], to=tmp_path / "run.jsonl", every=1, budget=None, log=logger, limits={"fc2": 50.0}
    )
    for own, callbacks in ((module, [callback]), (twin, [])):
        torch.manual_seed(5)
        trainer = lightning.Trainer(
            max_epochs=1,
            accumulate_grad_batches=2,
            accelerator="cpu",
            logger=logger if callbacks else False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=callbacks,
        )
        trainer.fit(own, torch.utils.data.DataLoader(data, batch_size=None))
    run = Run.read(tmp_path / "run.jsonl")
    assert [look.step for look in run.looks] == [0, 1, 2]
    rows = list(csv.DictReader(Path(logger.log_dir, "metrics.csv").read_text(encoding="utf-8").splitlines()))
    check({name: {int(row["step"]): float(row[name]) for row in rows if row[name]} for name in rows[0]}, run)
    assert all(torch.equal(*pair) for pair in zip(module.parameters(), twin.parameters(), strict=True))
