"""Models of the real classes and sizes with random weights, for timing: nothing is downloaded, nothing is learned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def save_owlv2(folder: Path, layers: int = 12) -> Path:
    """OWLv2-base: ViT-B/16 at 960 pixels. Few guesses pass the lowest score, as with the trained one."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import CLIPTokenizer, Owlv2Config, Owlv2ForObjectDetection, Owlv2ImageProcessor, Owlv2Processor

    letters = sorted(ByteLevel.alphabet())
    entries = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(
        vocab={entry: number for number, entry in enumerate(entries)}, merges=[], pad_token="!", model_max_length=16
    )
    text = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": layers, "num_attention_heads": 8}
    text |= {"vocab_size": 49_408, "bos_token_id": 512, "eos_token_id": 513, "max_position_embeddings": 16}
    vision = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": layers, "num_attention_heads": 12}
    vision |= {"image_size": 960, "patch_size": 16}
    torch.manual_seed(0)
    model = Owlv2ForObjectDetection(Owlv2Config(text_config=text, vision_config=vision, projection_dim=512))
    for linear in (model.class_head.logit_shift, model.class_head.logit_scale):
        torch.nn.init.zeros_(linear.weight)
    torch.nn.init.constant_(model.class_head.logit_shift.bias, -2.31)  # so that some dozens of 3,600 guesses pass
    model.save_pretrained(folder)
    images = Owlv2ImageProcessor(size={"height": 960, "width": 960})
    Owlv2Processor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def save_phi(folder: Path, texts: Sequence[str], device: str, layers: int = 32) -> Path:
    """Phi-3.5-mini's shape in bf16, with a tokenizer learned from the texts, so that words are tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import Phi3Config, Phi3ForCausalLM, PreTrainedTokenizerFast

    specials = ["<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=4_000, special_tokens=specials, initial_alphabet=letters, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|endoftext|>", chat_template=CHAT
    )
    tokenizer.save_pretrained(folder)
    config = Phi3Config(
        vocab_size=32_064, hidden_size=3072, intermediate_size=8192, num_hidden_layers=layers, num_attention_heads=32,
        bos_token_id=0, eos_token_id=3, pad_token_id=0, max_position_embeddings=4096,
        original_max_position_embeddings=4096, dtype=torch.bfloat16,
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            Phi3ForCausalLM(config).save_pretrained(folder)
    finally:
        torch.set_default_dtype(torch.float32)
    return folder
