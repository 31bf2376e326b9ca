"""All exercises that ask for a function, by name."""

from __future__ import annotations

from .engine import Exercise
from .tasks import advantages, aggregation, difficulty, kl, sampling, surrogates

EXERCISES: dict[str, Exercise] = {
    exercise.name: exercise
    for room in (advantages, aggregation, surrogates, kl, sampling, difficulty)
    for exercise in room.EXERCISES
}
