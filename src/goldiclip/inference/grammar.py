"""What a box may look like while it is being said: `[x1, y1, x2, y2]` with 0 ≤ x1 < x2 < size, and the same for y."""

from __future__ import annotations

from collections.abc import Sequence

from goldiclip.data.tokenizer import Tokenizer

NUM_NUMBERS = 4


class BoxGrammar:
    """From the tokens said so far to the ones that keep a valid box possible, the end included."""

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self.size = size
        self.open, self.comma, self.close = (_single(tokenizer, mark) for mark in "[,]")
        self.digits = {_single(tokenizer, str(digit)): digit for digit in range(10)}
        self.token_of = {digit: token for token, digit in self.digits.items()}
        self.end = tokenizer.eot

    def __call__(self, said: Sequence[int]) -> Sequence[int]:
        if not said:
            return [self.open]
        if said[-1] == self.close:
            return [self.end]
        numbers = self._numbers(said)
        low, high = self._bounds(numbers)
        current = numbers[-1]
        allowed = [self.token_of[digit] for digit in range(10) if _can_reach(current + str(digit), low, high)]
        if current and low <= int(current) <= high:
            allowed.append(self.close if len(numbers) == NUM_NUMBERS else self.comma)
        return allowed

    def _numbers(self, said: Sequence[int]) -> list[str]:
        """The digits of each number begun."""
        numbers = [""]
        for token in said[1:]:
            if token == self.comma:
                numbers.append("")
            else:
                numbers[-1] += str(self.digits[token])
        return numbers

    def _bounds(self, numbers: list[str]) -> tuple[int, int]:
        """The least and greatest value of the number being said; the first corner leaves room for the second."""
        if len(numbers) <= 2:
            return 0, self.size - 2
        return int(numbers[len(numbers) - 3]) + 1, self.size - 1


def _can_reach(prefix: str, low: int, high: int) -> bool:
    """Whether more digits (or none) can make `prefix` a number in low..high that does not begin with a needless 0."""
    if len(prefix) > 1 and prefix[0] == "0":
        return False
    first = last = int(prefix)
    while first <= high:
        if last >= low:
            return True
        if first == 0:
            return False
        first, last = first * 10, last * 10 + 9
    return False


def _single(tokenizer: Tokenizer, mark: str) -> int:
    (token,) = tokenizer.tokens(mark)
    return token
