"""Train the tiny models from nothing: `python train.py all` paints the data, trains the networks and exports them.

Every stage can be stopped and started again; it continues from its checkpoint in the work folder. The same seed
and schedule on the same machine type give the same weights up to rounding.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from training.clips import ClipBatches, ClipData, ClipSchedule, load_clip_data, make_clip_data, save_clip_data
from training.dataset import SceneData, load_dataset, make_dataset, save_dataset
from training.decoder import DecoderTraining
from training.export import PICTURES, VIDEO, export_decoder, export_transformer
from training.network import TinyFlux
from training.pictures import PictureBatches, PictureSchedule
from training.samples import PROMPTS, grid, sample, to_pictures
from training.transformer import TransformerTraining
from training.video_network import TinyWan

HERE = Path(__file__).resolve().parent
FIRST_SCENE = 1_000_000  # scene numbers of seed 0; each seed has a million of its own


def data_path(options: argparse.Namespace) -> Path:
    return options.work / "scenes.pt"


def paint_data(options: argparse.Namespace) -> None:
    data = make_dataset(FIRST_SCENE * (1 + options.seed), options.scenes)
    save_dataset(data, data_path(options))
    print(f"{options.scenes} scenes; the latent keeps {data.latent.kept_variance:.1%} of the variance")


def resume_decoder(options: argparse.Namespace, data: SceneData) -> DecoderTraining:
    training = DecoderTraining(data, options.decoder_steps, options.seed + 2)
    return resume(training, options.work / "decoder.pt")


def resume_transformer(options: argparse.Namespace, data: SceneData) -> TransformerTraining:
    schedule = PictureSchedule(options.small_steps, options.large_steps, options.decay_steps)
    training = TransformerTraining(TinyFlux, PictureBatches(data, schedule), schedule, options.seed + 1)
    return resume(training, options.work / "transformer.pt")


def resume(training, checkpoint: Path):
    if checkpoint.exists():
        training.load(checkpoint)
    return training


def train_decoder(options: argparse.Namespace) -> None:
    resume_decoder(options, load_dataset(data_path(options))).run(options.work / "decoder.pt")


def train_transformer(options: argparse.Namespace) -> None:
    resume_transformer(options, load_dataset(data_path(options))).run(options.work / "transformer.pt")


def export(options: argparse.Namespace) -> None:
    data = load_dataset(data_path(options))
    options.weights.mkdir(parents=True, exist_ok=True)
    for path in (
        export_transformer(
            PICTURES, resume_transformer(options, data), len(data.tokens), options.weights, options.seed
        ),
        export_decoder(resume_decoder(options, data), options.weights, options.seed),
    ):
        print_size(path)


def print_size(path: Path) -> None:
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


def paint_samples(options: argparse.Namespace) -> None:
    data = load_dataset(data_path(options))
    latents = sample(resume_transformer(options, data).average, list(PROMPTS), options.pixels, seed=options.seed)
    grid(to_pictures(resume_decoder(options, data).average, latents)).save(options.picture, optimize=True)
    print(f"{options.picture}: " + " | ".join(PROMPTS))


def clip_data(options: argparse.Namespace) -> ClipData:
    """In the latent space of the pictures, whose decoder then shows the frames too."""
    path = options.work / "clips.pt"
    if not path.exists():
        latent = load_dataset(data_path(options)).latent
        save_clip_data(make_clip_data(latent, FIRST_SCENE * (1 + options.seed), options.scenes), path)
    return load_clip_data(path)


def make_video_model(options: argparse.Namespace) -> None:
    data, checkpoint = clip_data(options), options.work / "video.pt"
    schedule = ClipSchedule(options.video_steps, options.video_decay_steps)
    training = TransformerTraining(TinyWan, ClipBatches(data, schedule), schedule, options.seed + 3)
    resume(training, checkpoint).run(checkpoint)
    options.weights.mkdir(parents=True, exist_ok=True)
    print_size(export_transformer(VIDEO, training, len(data.tokens), options.weights, options.seed))


STAGES = {
    "data": paint_data,
    "decoder": train_decoder,
    "transformer": train_transformer,
    "export": export,
    "samples": paint_samples,
    "video": make_video_model,
}


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=[*STAGES, "all"], help="what to do; 'all' does everything in this order")
    parser.add_argument("--work", type=Path, default=HERE / "work", help="folder for data and checkpoints")
    parser.add_argument("--weights", type=Path, default=HERE / "weights", help="folder for the exported files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2, help="processor threads for training")
    parser.add_argument("--scenes", type=int, default=8000, help="painted scenes, each also used mirrored")
    parser.add_argument("--decoder-steps", type=int, default=1500)
    parser.add_argument("--small-steps", type=int, default=2200, help="transformer steps on small pictures only")
    parser.add_argument("--large-steps", type=int, default=2000, help="transformer steps mostly on large pictures")
    parser.add_argument("--decay-steps", type=int, default=1300, help="last steps, with falling learning rate")
    parser.add_argument("--video-steps", type=int, default=3400, help="steps of the video model")
    parser.add_argument("--video-decay-steps", type=int, default=1200, help="of these, with falling learning rate")
    parser.add_argument("--pixels", type=int, default=256, help="size of the sample pictures, a multiple of 16")
    parser.add_argument("--picture", type=Path, default=HERE / "samples.png", help="file for the sample pictures")
    options = parser.parse_args(arguments)
    if options.pixels % 16:
        parser.error(f"--pixels must be a multiple of 16, not {options.pixels}")
    return options


def main() -> int:
    options = parse_options()
    options.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    try:
        for name, stage in STAGES.items():
            if options.stage in (name, "all"):
                stage(options)
    except FileNotFoundError as missing:
        print(f"error: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
