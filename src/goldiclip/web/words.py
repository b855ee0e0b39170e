"""What requests and answers look like: the types that the OpenAPI document is made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Text = Annotated[str, Field(max_length=2_000)]
Phrase = Annotated[str, Field(min_length=1, max_length=300)]
Name = Annotated[str, Field(max_length=1_000)]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


class OnPicture(Asked):
    """A picture of the index by its id, or one that was uploaded."""

    image: Name | None = Field(None, description="id of a picture in the index")
    upload: Name | None = Field(None, description="name that POST /api/uploads gave")


class Search(OnPicture):
    text: Text = Field("", description="what to look for; with image or upload, both count")
    k: int = Field(24, ge=1, le=100)
    shortlist: int = Field(200, ge=0, le=1_000, description="pictures the second stage looks at; 0 trusts the first")
    where: dict[Name, Name] = Field({}, max_length=8, description="only pictures whose records say so")
    maps: bool = Field(True, description="also say where each hit shows the text")


class Sentence(Asked):
    text: Text


class Phrases(OnPicture):
    phrases: list[Phrase] = Field(min_length=1, max_length=16)


MOST_NAMES = 120


class Classes(OnPicture):
    classes: list[Phrase] = Field(
        min_length=2, max_length=60, description=f"names; synonyms are parted by commas; {MOST_NAMES} in all"
    )
    mode: Literal["value", "sink", "attention"] | None = None

    @field_validator("classes")
    @classmethod
    def _few_names(cls, classes: list[str]) -> list[str]:
        """Each name is read in several prompts and has a map of its own."""
        if (count := sum(1 + one.count(",") for one in classes)) > MOST_NAMES:
            raise ValueError(f"{count:,} names with their synonyms; at most {MOST_NAMES} are taken")
        return classes


class Asking(OnPicture):
    question: Phrase
    beams: int = Field(3, ge=1, le=5)


class Captioning(OnPicture):
    beams: int = Field(3, ge=1, le=5)


class Locating(OnPicture):
    phrase: Phrase
    beams: int = Field(3, ge=1, le=5)


class Hit(BaseModel):
    id: str
    score: float
    text_agnostic: float = Field(description="cosine of the first stage")
    first_rank: int = Field(description="place in the first stage's order, from 0")
    record: dict[str, Any]


class Map(BaseModel):
    """Where a text looks in a picture, row by row, 0..1, and the share of its attention that did not go to the sink."""

    rows: int
    columns: int
    cells: list[float]
    kept: float
    phrase: str = ""


class Answered(BaseModel):
    notices: list[str] = Field(default_factory=list, description="what was cut, and the like")


class Found(Answered):
    hits: list[Hit]
    first: list[Hit] = Field(description="the first stage's order, text-agnostic")
    milliseconds: float


class Uploaded(BaseModel):
    upload: str
    width: int
    height: int


class Span(BaseModel):
    phrase: str
    start: int
    end: int


class Spans(BaseModel):
    spans: list[Span]


class Maps(Answered):
    width: int
    height: int
    maps: list[Map]


class Segments(Answered):
    width: int
    height: int
    classes: list[str]
    shares: list[float]
    mask: str = Field(description="PNG in base64, one byte a pixel: which class; perhaps smaller than the picture")


class Said(Answered):
    text: str
    confidence: float


class Box(Answered):
    box: tuple[float, float, float, float] = Field(description="x0, y0, x1, y1 in fractions of the picture")
    confidence: float


class About(BaseModel):
    name: str
    pictures: int
    looks_twice: bool = Field(description="whether there is a second, text-conditioned stage")
    speaks: bool = Field(description="whether it captions, answers and locates")
    segments: list[str] = Field(description="modes of segmentation")
    precision: str
    bytes_per_picture: int
