"""A configuration reads back as it was written, takes typed words, and says what is wrong by name."""

from __future__ import annotations

import dataclasses

import pytest

from goldiclip import recipes
from goldiclip.config import Config, ConfigError, flatten, from_yaml, override, resolve, to_yaml, validate
from goldiclip.config.words import takes
from goldiclip.recipes import recipe


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_is_valid_and_reads_back_as_written(name: str) -> None:
    config = recipe(name)
    assert from_yaml(to_yaml(config)) == config
    assert config.recipe == name


def test_words_change_what_they_name_with_its_type() -> None:
    config = override(
        recipe("tiny"),
        [
            "optim.lr=2e-3",
            "data.train=a.tar,b.tar",
            "data.views.local_scale=0.1,0.5",
            "run.compile=True",
            "model.vision.width=48",
        ],
    )
    assert (config.optim.lr, config.data.train, config.data.views.local_scale) == (2e-3, ("a.tar", "b.tar"), (0.1, 0.5))
    assert (config.run.compile, config.model.vision.width) == (True, 48)


def test_a_list_of_shards_keeps_braces_and_spaces() -> None:
    config = override(recipe("tiny"), ["data.train=[a/{00,01}.tar, my shards/{000..009}.tar]"])
    assert config.data.train == ("a/{00,01}.tar", "my shards/{000..009}.tar")
    assert from_yaml(to_yaml(config)) == config


def test_a_value_may_begin_with_a_dash_and_a_truth_be_written_small() -> None:
    config = override(recipe("tiny"), ["run.name=--draft", "run.compile=true", "run.deterministic=FALSE"])
    assert (config.run.name, config.run.compile, config.run.deterministic) == ("--draft", True, False)


def test_two_names_for_two_sources_are_one_word_or_two() -> None:
    for word in ("data.train=a.tar::b.tar", "data.train=a.tar,b.tar"):
        config = override(recipe("tiny"), [word, "data.weights=1,3"])
        assert config.data.sources == ("a.tar", "b.tar")
        assert from_yaml(to_yaml(config)) == config


def test_every_field_says_what_it_takes() -> None:
    said = {name: takes(name) for name, _ in flatten(Config())}
    assert said["data.views.local_scale"] == "2 values parted by commas, each a number"
    assert said["data.train"] == "values parted by commas, each a text"
    assert said["run.precision"] == "'bf16', 'fp32'"


def test_no_words_change_nothing() -> None:
    assert override(recipe("cc3m"), []) == recipe("cc3m")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("optim.lrr=1", "optim.lr"),
        ("lr=1", "optim.lr"),
        ("model=1", "model.vision.name"),
        ("optim.lr", "key=value"),
        ("optim.lr=fast", "fast"),
        ("objective.balance=some", "'learned', 'uniform'"),
        ("run.batch=-1", "run.batch is -1"),
        ("optim.lr=nan", "optim.lr is nan"),
        ("data.views.global_scale=0.9,0.1", "low ≤ high"),
        ("data.views.flip=2", "between 0 and 1"),
        ("data.views.global_scale=0.9", "global_scale is '0.9'; allowed: 2 values parted by commas, each a number"),
        ("data.views.jitter=0,0,0,0.6", "the last (hue) at most 0.5"),
        ("data.weights=1,2", "one weight per source"),
        ("run.compile=perhaps", "run.compile is 'perhaps'; allowed: True or False"),
        ("model.vision.width=wide", "a whole number or None"),
        ("run.sinks=paper", "values parted by commas, each 'tensorboard', 'wandb', 'trackio'"),
        ("run.log_every_steps=0", "run.log_every_steps is 0; allowed: 1 or more"),
        ("run.seed=-1", "run.seed is -1"),
        ("data.workers=-1", "0 or more"),
        ("optim.betas=0.9,1", "two numbers from 0, below 1"),
        ("model.decoder_heads=0", "1 or more, for cap"),
        ("model.vision.image_size=33", "a multiple of the patch size, 8"),
        ("data.views.local_size=20", "a multiple of the patch size"),
        ("model.pooling_heads=3", "divisor of model.embedding"),
    ],
)
def test_a_wrong_word_is_an_error_that_names_field_value_and_what_is_allowed(word: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        override(recipe("tiny"), [word])
    assert said in str(error.value)


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="cc3m"):
        recipe("cc3n")


def test_yaml_is_checked_like_words() -> None:
    with pytest.raises(ConfigError, match=r"optim\.lr"):
        from_yaml("optim: {lrr: 1}")
    with pytest.raises(ConfigError, match="schema"):
        from_yaml("schema: 99")
    with pytest.raises(ConfigError, match="mapping"):
        from_yaml("- 1")
    for text in ("a: b: c", "!!python/object/apply:os.system ['echo run']"):
        with pytest.raises(ConfigError, match=r"mine\.yaml: not a configuration in YAML: .*line 1"):
            from_yaml(text, "mine.yaml")


def test_a_towers_name_tells_its_patch_size() -> None:
    """cc3m's vit_base_patch16_clip_224: a view that does not divide would stop the run at its first step."""
    with pytest.raises(ConfigError, match=r"data\.views\.local_size is 100; allowed: a multiple of the patch size, 16"):
        override(recipe("cc3m"), ["data.views.local_size=100"])
    assert override(
        recipe("cc3m"), ["model.vision.patch_size=20", "data.views.local_size=100", "model.vision.image_size=240"]
    )


def test_a_recipe_without_a_term_builds_none_of_its_parts() -> None:
    sigmoid, silc, ca = recipe("cc3m/sigmoid"), recipe("cc3m/silc"), recipe("cc3m/ca")
    assert (sigmoid.model.pooling_heads, sigmoid.model.decoder_depth, sigmoid.data.views.num_local) == (0, 0, 0)
    assert silc.data.views.num_local == 6
    assert silc.model.decoder_depth == 0
    assert (ca.model.pooling_heads, ca.model.decoder_depth, ca.terms) == (8, 0, ("ret",))


def test_the_ablation_adds_one_thing_a_row() -> None:
    rows = [recipe(f"cc3m/{row}") for row in ("ca", "dc", "vd", "un", "sd")]
    assert [len(row.terms) for row in rows] == [1, 4, 5, 5, 6]
    assert [row.objective.balance for row in rows] == ["uniform"] * 3 + ["learned"] * 2


def test_the_papers_table_stands_in_the_recipes() -> None:
    cc3m, open30m = recipe("cc3m"), recipe("open30m")
    assert (cc3m.run.batch, open30m.run.batch) == (2_560, 6_400)
    assert (cc3m.optim.eps, open30m.optim.eps) == (1e-8, 1e-6)
    assert (cc3m.optim.weight_decay, open30m.optim.weight_decay) == (0.5, 0.2)
    for config in (cc3m, open30m):
        assert (config.optim.lr, config.optim.betas, config.optim.warmup_steps) == (5e-4, (0.9, 0.98), 2_000)
        assert (config.run.epochs, config.objective.distill.momentum) == (35, 0.996)


def test_a_term_without_its_part_is_refused() -> None:
    config = recipe("tiny")
    with pytest.raises(ConfigError, match="decoder_depth"):
        validate(dataclasses.replace(config, model=dataclasses.replace(config.model, decoder_depth=0)))


def test_every_leaf_has_a_dotted_name() -> None:
    names = [name for name, _ in flatten(Config())]
    assert len(names) == len(set(names))
    assert "objective.weights.cap" in names


def test_resolving_twice_is_resolving_once() -> None:
    config = resolve(recipe("demo/ca"))
    assert resolve(config) == config
