"""The real model classes at a few thousand random weights, with processors and tokenizers built here: no download."""

from __future__ import annotations

from pathlib import Path

import torch


def byte_letters() -> list[str]:
    """The 256 letters that byte-level tokenizers write bytes in."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def save_owlv2(folder: Path, size: int = 32) -> Path:
    from transformers import CLIPTokenizer, Owlv2Config, Owlv2ForObjectDetection, Owlv2ImageProcessor, Owlv2Processor

    letters = byte_letters()
    entries = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=[], pad_token="!", model_max_length=16)
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = tower | {
        "vocab_size": len(vocabulary),
        "bos_token_id": 512,
        "eos_token_id": 513,
        "max_position_embeddings": 16,
    }
    torch.manual_seed(0)
    model = Owlv2ForObjectDetection(
        Owlv2Config(text_config=text, vision_config=tower | {"image_size": size, "patch_size": 8}, projection_dim=16)
    )
    model.save_pretrained(folder)
    images = Owlv2ImageProcessor(size={"height": size, "width": size})
    Owlv2Processor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def save_grounding_dino(folder: Path) -> Path:
    from transformers import (
        BertTokenizer,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessor,
        GroundingDinoProcessor,
    )

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,'-"
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "?", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = BertTokenizer(vocab={entry: number for number, entry in enumerate(entries)}, model_max_length=256)
    backbone = {"model_type": "swin", "image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1, 1, 1]}
    backbone |= {"num_heads": [1, 1, 1, 1], "window_size": 4, "out_features": ["stage2", "stage3", "stage4"]}
    text = {"model_type": "bert", "vocab_size": len(entries), "hidden_size": 16, "num_hidden_layers": 1}
    text |= {"num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    config = GroundingDinoConfig(
        backbone_config=backbone, text_config=text, d_model=32, num_queries=12, encoder_layers=1, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
    )  # fmt: skip
    GroundingDinoForObjectDetection(config).save_pretrained(folder)
    images = GroundingDinoImageProcessor(size={"shortest_edge": 64, "longest_edge": 128})
    GroundingDinoProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def save_phi3(folder: Path) -> Path:
    """A Phi-3 of two narrow layers over bytes, with Phi's chat turns."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import Phi3Config, Phi3ForCausalLM, PreTrainedTokenizerFast

    specials = ["<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"]
    vocabulary = {entry: number for number, entry in enumerate([*specials, *byte_letters()])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|endoftext|>", chat_template=CHAT
    )
    tokenizer.add_special_tokens({"additional_special_tokens": specials})
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Phi3Config(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        bos_token_id=0, eos_token_id=3, pad_token_id=0, max_position_embeddings=2048,
        original_max_position_embeddings=2048,
    )  # fmt: skip
    Phi3ForCausalLM(config).save_pretrained(folder)
    return folder
