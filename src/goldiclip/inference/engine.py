"""A trained model at work: pictures and words in; embeddings, scores, heatmaps, captions, answers and boxes out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.config import Config, ConfigError
from goldiclip.data.tasks import parse_box, prompt_tokens
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.views import render
from goldiclip.inference import hub
from goldiclip.inference.generate import Generated, generate
from goldiclip.inference.grammar import BoxGrammar
from goldiclip.inference.pictures import Fit, Picture, batches, each, pixels
from goldiclip.kernels.few_rows import MOST_ROWS, FewRows
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import Box, Encoder, ImageFeatures, TextFeatures

if TYPE_CHECKING:
    from goldiclip.inference.segment import Segmented


class TextTruncated(UserWarning):
    """A text was longer than the text tower reads, and its end was not looked at."""


def warn(message: str) -> None:
    warnings.warn(message, TextTruncated, stacklevel=4)


@dataclass(frozen=True)
class Said:
    """What the decoder said, and the geometric mean of its tokens' probabilities."""

    text: str
    confidence: float
    finished: bool


@dataclass(frozen=True)
class Located:
    """Where a phrase is: the box in pixels of the picture, x0, y0, x1, y1."""

    box: Box
    confidence: float


class Engine:
    """Any `Encoder` with what surrounds it: its tokenizer, its picture size, a device and a precision."""

    def __init__(
        self,
        model: Encoder,
        *,
        image_size: int,
        context: int = 77,
        device: str | torch.device = "auto",
        precision: str = "fp32",
        batch: int = 64,
        normalise: Callable[[Tensor], Tensor] = render,
        tokenizer: Tokenizer | None = None,
        config: Config | None = None,
        report: Callable[[str], None] = warn,
    ) -> None:
        """`config` is the run the model came from; `report` is told what was cut, in place of a warning."""
        if precision not in ("fp32", "bf16"):
            raise ValueError(f"precision is {precision!r}; allowed: fp32, bf16")
        self.device = _device(device)
        self.precision = precision
        self.model = model
        if isinstance(model, torch.nn.Module):
            model.to(self.device).eval()
        self.tokenizer = tokenizer or Tokenizer(context)
        self.image_size, self.batch, self.normalise = image_size, batch, normalise
        self.config, self.report = config, report
        self.name = ""  # where it was loaded from

    def __getstate__(self) -> dict[str, Any]:
        """What is laid out for this processor can be neither copied nor sent; it is laid out again."""
        return {name: value for name, value in self.__dict__.items() if name != "_few_rows"}

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Engine:
        """From an encoder folder, a run's folder, or a hub name `owner/model`."""
        from goldiclip.model.pretrained import load_model

        model, config = load_model(find_encoder(path))
        size, tokenizer = config.model.vision.image_size, Tokenizer.of(config.model.text)
        engine = cls(model, image_size=size, tokenizer=tokenizer, config=config, **options)
        engine.name = str(path)
        return engine

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        **options: Any,
    ) -> Engine:
        """From a folder or the hub, as the hub's libraries spell it."""
        if Path(name).exists():
            return cls.load(name, **options)
        engine = cls.load(
            hub.download(
                str(name), revision=revision, cache_dir=cache_dir, token=token, local_files_only=local_files_only
            ),
            **options,
        )
        engine.name = str(name)
        return engine

    def save_pretrained(self, folder: str | Path, *, with_decoder: bool = True) -> Path:
        """An encoder folder: weights, configuration, tokenizer and model card."""
        from goldiclip.model.pretrained import save_model

        if self.config is None or not isinstance(self.model, GoldiCLIP):
            raise ValueError(f"a {type(self.model).__name__} without its configuration cannot be saved")
        saved = save_model(self.model, self.config, folder, with_decoder=with_decoder)
        return hub.save_tokenizer(saved, self.config.model.text.tokens)

    def push_to_hub(self, name: str, *, with_decoder: bool = True, **options: Any) -> str:
        """Upload as `owner/model` and say where it is. Options: private, token, revision, commit_message, create_pr."""
        return hub.upload(name, lambda folder: self.save_pretrained(folder, with_decoder=with_decoder), **options)

    @property
    def modes(self) -> tuple[str, ...]:
        return self.model.modes

    # --- features ---------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def encode_images(self, pictures: Picture | Iterable[Picture], how: Fit = "crop") -> ImageFeatures:
        """Features of one picture or several, in order, on this engine's device."""
        parts = list(self.stream_images(pictures, how))
        if not parts:
            raise ValueError("no pictures: expected at least one")
        return join(parts)

    @torch.inference_mode()
    def stream_images(self, pictures: Picture | Iterable[Picture], how: Fit = "crop") -> Iterator[ImageFeatures]:
        """Features of any number of pictures, a batch at a time."""
        for views in batches(each(pictures), self.image_size, self.batch, how):
            with self.autocast():
                yield self.model.encode_image(self.normalise(views.to(self.device)))

    @torch.inference_mode()
    def encode_texts(self, texts: str | Sequence[str]) -> TextFeatures:
        """Features of one text or several. What is longer than the tower reads is cut, with a warning that says so."""
        rows = self.tokenizer.encode([texts] if isinstance(texts, str) else texts)
        if num_cut := int(rows.truncated.sum()):
            self.report(f"{num_cut} of {len(rows)} texts exceed {self.tokenizer.context} tokens; their ends were cut")
        parts = []
        for start in range(0, len(rows), 8 * self.batch):
            with self.autocast(), self._quickly(len(rows.ids)):
                piece = rows.slice(start, min(start + 8 * self.batch, len(rows)))
                parts.append(self.model.encode_text(piece.to(self.device)))
        return TextFeatures(
            embedding=torch.cat([part.embedding for part in parts]),
            tokens=torch.cat([part.tokens for part in parts]),
            lengths=torch.cat([part.lengths for part in parts]),
            max_length=rows.max_length,
        )

    def _quickly(self, num_tokens: int) -> AbstractContextManager[Any]:
        is_few = self.device.type == "cpu" and self.precision == "fp32" and num_tokens <= MOST_ROWS
        return self._few_rows if is_few else nullcontext()

    @cached_property
    def _few_rows(self) -> FewRows:
        """On a processor the text tower's weights once more, laid out for a sentence at a time."""
        layers = self.model.text.modules() if isinstance(self.model, GoldiCLIP) else ()
        return FewRows(layer.weight for layer in layers if isinstance(layer, torch.nn.Linear))

    def embed_images(self, pictures: Picture | Iterable[Picture]) -> Tensor:
        """Text-agnostic embeddings (N, D), of length 1, in float32."""
        parts = [part.embedding for part in self.stream_images(pictures)]
        return F.normalize(torch.cat(parts).float(), dim=-1)

    def embed_texts(self, texts: str | Sequence[str]) -> Tensor:
        """Text embeddings (N, D), of length 1, in float32."""
        return F.normalize(self.encode_texts(texts).embedding.float(), dim=-1)

    @torch.inference_mode()
    def score(
        self,
        images: ImageFeatures | Picture | Sequence[Picture],
        texts: TextFeatures | str | Sequence[str],
        mode: str | None = None,
    ) -> Tensor:
        """Logits (images, texts): text-conditioned where the model can, unless `mode` says otherwise."""
        image = images if isinstance(images, ImageFeatures) else self.encode_images(images)
        text = texts if isinstance(texts, TextFeatures) else self.encode_texts(texts)
        with self.autocast():
            return self.model.score(image, text, mode or self.modes[0]).float()

    # --- where things are -------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def heatmap(self, picture: Picture, phrases: str | Sequence[str], kind: str = "attention") -> Tensor:
        """(phrases, H, W): how much each pixel's patch has to do with each phrase, at the picture's own size.

        kind  attention     share of the text's attention; what the picture does not show goes to the sink, not here
              without_sink  the same as shares of what did not go to the sink
              patch         cosine of each patch with the text, by the value path
              patch_sink    the same beside the sink
        """
        image = pixels(picture)
        grids = self.patch_maps(self.encode_images([image], how="whole"), self.encode_texts(phrases), kind)
        return enlarged(grids[0], (image.shape[1], image.shape[2]))

    @torch.inference_mode()
    def patch_maps(self, image: ImageFeatures, texts: TextFeatures, kind: str = "attention") -> Tensor:
        """(B, M, rows, columns): a heatmap before it is enlarged; the kinds are those of `heatmap`."""
        with self.autocast():
            if kind in ("attention", "without_sink"):
                maps = self._pooled().condition(image, texts).attention.float()
            elif kind in ("patch", "patch_sink"):
                maps = self.model.score(image, texts, kind).float()
            else:
                raise ValueError(f"kind is {kind!r}; allowed: attention, without_sink, patch, patch_sink")
        if kind == "without_sink":
            maps = maps / maps.sum(-1, keepdim=True).clamp(min=1e-6)
        return maps.unflatten(-1, image.grid)

    def segment(
        self, picture: Picture, classes: Sequence[str], mode: str | None = None, short_side: int = 336
    ) -> Segmented:
        """Which of the classes each pixel shows, by sliding windows over patch scores, without training.

        classes     names; synonyms of one class stand behind commas: "sofa, couch"
        mode        value, sink or attention; the first that this encoder has unless you say otherwise
        short_side  the picture's shorter side for a model that sees 224 pixels: larger finds smaller things
        """
        from goldiclip.inference.segment import segment, segmentation_modes

        return segment(self, picture, classes, mode or segmentation_modes(self)[0], short_side)

    # --- what the decoder says --------------------------------------------------------------------------------------

    def caption(self, pictures: Picture | Sequence[Picture], beams: int = 1) -> list[Said]:
        """A short caption of each picture."""
        return self._say(pictures, "cap", "", beams)

    def ask(self, pictures: Picture | Sequence[Picture], question: str, beams: int = 1) -> list[Said]:
        """The answer to one question about each picture."""
        return self._say(pictures, "vqa", question.strip().rstrip("?").strip() + "?", beams)

    def _say(self, pictures: Picture | Sequence[Picture], task: str, subject: str, beams: int) -> list[Said]:
        prompt = self._prompt(task, subject, room_after=8)
        return [
            Said(self.tokenizer.decode(g.ids), g.confidence, g.finished)
            for g in self._generate(pictures, prompt, beams)
        ]

    def locate(self, picture: Picture, phrase: str, beams: int = 3) -> Located:
        """The box of a phrase. The whole picture is looked at, and only boxes can be said."""
        image = pixels(picture)
        prompt = self._prompt("ref", phrase, room_after=18)
        grammar = BoxGrammar(self.tokenizer, self.image_size)
        (said,) = self._generate([image], prompt, beams, how="whole", grammar=grammar)
        found = parse_box(self.tokenizer.decode(said.ids))
        assert found is not None, "the grammar lets nothing but a box be said"
        height, width = image.shape[1:]
        x0, y0, x1, y1 = ((corner + 0.5) / self.image_size for corner in found)
        return Located((x0 * width, y0 * height, x1 * width, y1 * height), said.confidence)

    def _prompt(self, task: str, subject: str, room_after: int) -> list[int]:
        prompt = prompt_tokens(self.tokenizer, task, subject, room=self.tokenizer.context - room_after)
        if len(prompt) < len(prompt_tokens(self.tokenizer, task, subject)):
            self.report(f"{subject[:40]!r}… is too long for a {task} prompt; its end was cut")
        return prompt

    @torch.inference_mode()
    def _generate(
        self, pictures: Picture | Sequence[Picture], prompt: list[int], beams: int, how: Fit = "crop", **options: Any
    ) -> list[Generated]:
        said: list[Generated] = []
        for features in self.stream_images(pictures, how):
            with self.autocast():
                said += generate(self._pooled(), features.keys, prompt, end=self.tokenizer.eot, beams=beams, **options)
        return said

    def _pooled(self) -> GoldiCLIP:
        if not isinstance(self.model, GoldiCLIP):
            raise ConfigError(
                f"a {type(self.model).__name__} has no text-conditioned pooling and no decoder; "
                f"it can score by {', '.join(self.modes)}"
            )
        return self.model

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()


def join(parts: Sequence[ImageFeatures]) -> ImageFeatures:
    """Batches of features as one."""
    return ImageFeatures(
        embedding=torch.cat([part.embedding for part in parts]),
        keys=torch.cat([part.keys for part in parts]),
        values=torch.cat([part.values for part in parts]),
        grid=parts[0].grid,
    )


def enlarged(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """(M, rows, columns) as (M, H, W)."""
    return F.interpolate(maps[None], size, mode="bicubic", align_corners=False)[0]


def find_encoder(path: str | Path) -> Path:
    """The encoder folder that a path or hub name means: the folder itself, or the one inside a run's folder."""
    folder = Path(path)
    for candidate in (folder, folder / "encoder"):
        if (candidate / "model.safetensors").is_file():
            return candidate
    if folder.exists():
        raise FileNotFoundError(f"{folder}: no model.safetensors in it; expected an encoder folder or a finished run")
    if str(path).count("/") == 1 and not str(path).startswith((".", "/", "~")):
        return hub.download(str(path))
    raise FileNotFoundError(f"{folder}: no such folder; expected an encoder folder, a run, or a hub name owner/model")


def _device(device: str | torch.device) -> torch.device:
    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
