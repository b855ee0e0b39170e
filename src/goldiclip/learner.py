"""The learner: six signals from one batch. `Learner.losses` is the paper's figure, top to bottom.

Text-conditioned pooling has to see every image's captions before it can score one image, so a step has two halves:
`encode_texts` embeds the captions at hand and `exchange` shows them to every rank; `losses` does the rest, and every
one of its terms splits by image. Called whole, the learner does both at once; accumulation (`train.accumulate`) calls
the halves apart, with many micro-batches for the second. Both go through `forward`, so that wrappers see every call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from goldiclip.config import Config
from goldiclip.data.views import painted, render
from goldiclip.exchange import StepTexts, check, exchange
from goldiclip.kernels.fp8 import narrow_products
from goldiclip.kernels.products import wide
from goldiclip.kernels.token_cross_entropy import token_cross_entropy
from goldiclip.losses import decode, sigmoid
from goldiclip.losses.balance import Balance
from goldiclip.losses.distill import Prototypes
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.teacher import Teacher
from goldiclip.types import DECODER_TASKS, Alone, Batch, ImageFeatures, Losses, Ranks


class Learner(nn.Module):
    """Student, teacher, prototypes and balance; only what the active terms need is built."""

    def __init__(self, config: Config, ranks: Ranks | None = None) -> None:
        super().__init__()
        self.config, self.ranks = config, ranks or Alone()
        objective, distill = config.objective, config.objective.distill
        weights = {term: weight for term, weight in asdict(objective.weights).items() if term in config.terms}
        pools = {"ta": distill.text_agnostic, "tc": distill.text_conditioned}
        self.pool_names = tuple(name for name, is_active in pools.items() if is_active)
        self.student = GoldiCLIP(config.model, seed=config.run.seed)
        if config.run.fp8:
            narrow_products(self.student.image.vision.tower.blocks)
        self.balance = Balance(weights, is_learned=objective.balance == "learned")
        self.teacher, self.prototypes = None, None
        if "sd" in config.terms:
            self.teacher = Teacher(self.student, distill.text_conditioned)
            self.prototypes = Prototypes(config.model.embedding, len(self.pool_names), distill)
            self.prototypes.reset_parameters(config.run.seed)
        reads = self.teacher is not None and distill.text_conditioned
        self.reads_captions = "ret" in config.terms or reads
        self.trains_captions = "ret" in config.terms or (reads and distill.text_grad)
        self._teacher_logits: Tensor | None = None
        self.paint = painted  # compiled by whoever compiles the towers
        self._freeze_what_no_term_trains()

    # --- one step ---------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch, texts: StepTexts | None = None, *, only: str | None = None) -> Any:
        """A whole step's losses; a micro-batch's, given `texts`; or with `only="texts"` the captions' embeddings."""
        with torch.autocast(batch.task.device.type, torch.bfloat16, enabled=self.config.run.precision == "bf16"):
            if only == "texts":
                return self.encode_texts(batch)
            if texts is None:
                self.begin_step()
                texts = self.exchange([batch], self.encode_texts(batch))
            return self.losses(batch, texts)

    def encode_texts(self, batch: Batch) -> Tensor:
        """(B·K, D): the embeddings of the captions at hand, in one packed pass; (0, D) when no term reads captions."""
        check(batch)
        if not self.reads_captions:
            dtype = self.student.scale.scale.dtype  # of the weights alone: a sharded one's `new_empty` would be sharded
            return torch.empty(0, self.config.model.embedding, dtype=dtype, device=batch.task.device)
        with torch.set_grad_enabled(self.trains_captions and torch.is_grad_enabled()):
            # Gradients of all micro-batches and ranks add up in this tensor: half precision would lose the small ones.
            return wide(self.student.encode_text(batch.captions).embedding)

    def exchange(self, batches: Sequence[Batch], embedding: Tensor) -> StepTexts:
        """What every rank has to know of the step's texts; `batches` are this rank's share of the step."""
        return exchange(batches, embedding, self.ranks, self.config.decoder_tasks)

    def losses(self, batch: Batch, texts: StepTexts) -> Losses:
        """The paper's figure. Over ranks all these numbers average, over micro-batches they add up, to the step's."""
        active = self.config.terms
        terms: dict[str, Tensor] = {}
        metrics: dict[str, Tensor] = {}
        global_views, local_views = self.views(batch)
        image = self.student.encode_image(global_views[:, 0])
        self.ranks.wait()  # the other ranks' texts have been on their way meanwhile
        if "ret" in active:
            terms["ret"] = self.retrieval(image, texts, metrics)
        if self.config.decoder_tasks:
            terms |= self.decoding(batch, image, texts)
        if "sd" in active:
            terms["sd"] = self.distillation(global_views, local_views, texts, metrics)

        share = len(batch) * self.ranks.size / texts.num_images
        total, pull = self.balance(torch.stack([terms[term] for term in active]), texts.has_targets(active), share)
        metrics |= {f"weight/{term}": pull[i] * share for i, term in enumerate(active)}
        said = {term: terms[term].detach() for term in active if term not in DECODER_TASKS or term in texts.tasks}
        return Losses(total, said, metrics)

    # --- the terms --------------------------------------------------------------------------------------------------

    def retrieval(self, image: ImageFeatures, texts: StepTexts, metrics: dict[str, Tensor]) -> Tensor:
        """L_ret = L_ta + L_tc of the images at hand."""
        config, score, parts = self.config.objective.retrieval, self.student.score, {}
        num_images, num_captions, num_ranks = texts.num_images, texts.num_captions, self.ranks.size
        own_rows = texts.own(len(image))
        is_own, equal = texts.image_ids(len(image)) == texts.owners(), None
        if config.equal_texts == "ignore":
            equal = sigmoid.is_equal_text(texts.caption_hash[own_rows].view(-1, num_captions), texts.caption_hash)
        if config.text_agnostic:
            logits = score(image, texts.embedding, mode="ta")
            parts["ta"] = sigmoid.text_agnostic(logits, is_own, equal, num_images, num_captions, num_ranks)
        if config.text_conditioned and config.negatives == "all":
            logits = score(image, texts.embedding, mode="tc")
            parts["tc"] = sigmoid.text_conditioned_all(logits, is_own, equal, num_images, num_captions, num_ranks)
        elif config.text_conditioned:
            own = texts.embedding[own_rows].unflatten(0, (len(image), num_captions))
            own_logits, logits = score(image, (own, texts.embedding[texts.shared]), mode="tc")
            is_own, equal = is_own[:, texts.shared], None if equal is None else equal[:, texts.shared]
            parts["tc"] = sigmoid.text_conditioned(own_logits, logits, is_own, equal, num_images, num_ranks)
        metrics |= {f"ret/{mode}": part.detach() for mode, part in parts.items()}
        return torch.stack(list(parts.values())).sum()

    def decoding(self, batch: Batch, image: ImageFeatures, texts: StepTexts) -> dict[str, Tensor]:
        """The token losses: task texts in one packed pass through text tower and decoder, then the vocabulary head."""
        assert self.student.head is not None
        hidden = self.student.decode(batch.task_texts, image, batch.task_owner, most_texts=len(DECODER_TASKS))
        targets = decode.find_targets(batch.task_texts, sum(batch.num_targets or batch.count_targets().tolist()))
        nll = self.student.head(hidden[targets.position], fused=token_cross_entropy, targets=targets.ids)
        means = decode.task_means(nll, batch.task[targets.text], texts.num_targets, self.ranks.size)
        return {task: means[DECODER_TASKS.index(task)] for task in self.config.decoder_tasks}

    def distillation(
        self, global_views: Tensor, local_views: Tensor, texts: StepTexts, metrics: dict[str, Tensor]
    ) -> Tensor:
        """L_sd: the student's local views against the teacher's global ones, each seen whole and through captions."""
        assert self.teacher is not None
        assert self.prototypes is not None
        if not local_views.shape[1]:
            raise ValueError("the batch has no local views: self-distillation needs at least one of every image")
        is_learned = self.config.objective.distill.text_grad
        with torch.no_grad():
            teacher = self.pools(self.teacher, global_views, texts.embedding, texts)
        queries = texts.embedding if is_learned else texts.embedding.detach()
        student = self.pools(self.student, local_views, queries, texts)
        sums = self.prototypes(student, teacher)
        per_image = self.ranks.size / texts.num_images
        seen = sums.mean_logits * per_image
        self._teacher_logits = seen if self._teacher_logits is None else self._teacher_logits + seen
        per_pair = per_image / (global_views.shape[1] * local_views.shape[1])
        norms = self.prototypes.centres.norm(dim=1) * (len(local_views) * per_image)
        for pool, name in enumerate(self.pool_names):
            metrics[f"sd/{name}"] = sums.cross_entropy[pool] * per_image
            metrics[f"teacher_entropy/{name}"] = sums.entropy[pool] * per_pair
            metrics[f"teacher_kl/{name}"] = (sums.cross_entropy - sums.entropy)[pool] * per_pair
            metrics[f"centre_norm/{name}"] = norms[pool]
        return sums.total * per_image

    def pools(self, encoder: GoldiCLIP | Teacher, views: Tensor, captions: Tensor, texts: StepTexts) -> Tensor:
        """(G, B, views, D): each view as a whole, and as the mean of what it is through the step's captions."""
        embedding, keys, values = encoder.image(views.flatten(0, 1))
        found = {"ta": embedding}
        if "tc" in self.pool_names:
            assert encoder.pooling is not None
            queries = captions if self.config.objective.distill.queries == "all" else captions[texts.shared]
            found["tc"] = encoder.pooling(queries, keys, values, what="mean")
        return torch.stack([found[name] for name in self.pool_names]).unflatten(1, views.shape[:2])

    def views(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Global and local views as normalised floats; stored ones get their colour and blur here, on the device."""
        device, dtype = batch.task.device.type, self.student.scale.scale.dtype
        if torch.is_autocast_enabled(device):  # the towers' first product would round them all the same
            dtype = torch.get_autocast_dtype(device)
        global_views, local_views = batch.global_views, batch.local_views
        if not global_views.is_floating_point():
            global_views = render(global_views, None, dtype, self.paint)
        if "sd" in self.config.terms and not local_views.is_floating_point():
            local_views = render(local_views, batch.photometrics, dtype, self.paint)
        return global_views, local_views

    # --- after the step ---------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Forget what an earlier step that came to nothing has left."""
        self._teacher_logits = None

    @torch.no_grad()
    def update_teacher(self) -> None:
        """Teacher and centres move together, after the optimiser's step, once that has proven good."""
        if self.teacher is None or self.prototypes is None:
            return
        if self._teacher_logits is None:
            raise RuntimeError("update_teacher comes once after each step's losses: there is nothing new to learn from")
        self.prototypes.move_centres(self.ranks.mean(self._teacher_logits))
        self._teacher_logits = None
        teachers, students = zip(*self._followed(), strict=True)
        torch._foreach_lerp_(teachers, students, 1 - self.config.objective.distill.momentum)

    def _followed(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each weight of the teacher with the student's that it follows; of both, the shard that lies here."""
        assert self.teacher is not None
        assert self.prototypes is not None
        students = dict(self.student.named_parameters())
        for name, parameter in self.teacher.named_parameters():
            yield _local(parameter), _local(students[name])
        yield _local(self.prototypes.teacher_weight), _local(self.prototypes.weight)

    def _freeze_what_no_term_trains(self) -> None:
        """A parameter that no gradient can reach is frozen: wrappers wait for every trainable one."""
        if "ret" not in self.config.terms:
            self.student.scale.requires_grad_(False)
            self.student.text.requires_grad_(self.trains_captions or bool(self.config.decoder_tasks))


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
