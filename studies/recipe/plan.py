"""A plan's file, and where training stands in it."""
import json
import math
from pathlib import Path

from tasks import FAMILIES

FIELDS = ("model", "vocabulary", "lr", "seed", "save_minutes", "log_every", "shard_mb", "most_mb", "stages")
SHAPE_FIELDS = ("hidden", "layers", "q_heads", "kv_heads", "head_dim", "intermediate", "rope_theta", "max_positions")
STAGE_FIELDS = ("T", "B", "pmax", "rep", "lm", "dense", "hard", "families")
STAGE_OPTIONS = ("minutes", "steps", "strings", "several", "crowded", "uuids", "uuid_values", "alike", "pairs", "few", "letters",
                 "guide", "hops", "questions")

GUIDES = ("copies", "lists")  # heads that are told where to look: for a value's tokens; for which word of a list comes next


def check_config(config: dict, file: Path) -> None:
    """Every field that a run will ask for: one of the last stage would be missed after hours otherwise."""
    def need(holder, names: tuple, where: str) -> None:
        if not isinstance(holder, dict):
            raise SystemExit(f"train.py: {file}: {where} is no JSON object.")
        for name in names:
            if name not in holder:
                raise SystemExit(f"train.py: {file}: {where} has no '{name}'; studies/recipe/cpu.json is a whole plan.")

    need(config, FIELDS, "the plan")
    need(config["model"], SHAPE_FIELDS, "'model'")
    hold = config.get("hold", 0.0)
    if not isinstance(hold, (int, float)) or not 0 <= hold < 1:
        raise SystemExit(f"train.py: {file}: 'hold' is {hold}: give the share of the plan, from 0 to less than 1, before the learning "
                         "rate comes down.")
    guided = config.get("guided")
    if guided is not None:
        if not isinstance(guided, dict) or not guided or set(guided) - set(GUIDES):
            raise SystemExit(f"train.py: {file}: 'guided' is {guided}: give a layer and a kv_head for one or more of "
                             f"{', '.join(GUIDES)}.")
        for guide, head in guided.items():
            need(head, ("layer", "kv_head"), f"'guided' of '{guide}'")
            for name, most in (("layer", config["model"]["layers"]), ("kv_head", config["model"]["kv_heads"])):
                if head[name] not in range(most):
                    raise SystemExit(f"train.py: {file}: '{name}' of '{guide}' in 'guided' is {head[name]}: the model has 0 to "
                                     f"{most - 1}.")
    if not isinstance(config["stages"], list) or not config["stages"]:
        raise SystemExit(f"train.py: {file}: 'stages' is no list of at least one stage.")
    for number, stage in enumerate(config["stages"], 1):
        need(stage, STAGE_FIELDS, f"stage {number}")
        unknown = sorted(set(stage) - set(STAGE_FIELDS + STAGE_OPTIONS))
        if unknown:
            raise SystemExit(f"train.py: {file}: stage {number} has '{unknown[0]}', which no stage has: {', '.join(STAGE_OPTIONS)} "
                             "may be there beside what must.")
        if stage.get("questions", 12) < 5:
            raise SystemExit(f"train.py: {file}: 'questions' of stage {number} is {stage['questions']}: dense contexts have four or "
                             "more, so give 5 or more.")
        if stage.get("guide") and guided is None:
            raise SystemExit(f"train.py: {file}: stage {number} has 'guide', and the plan does not say which head to guide: add "
                             "\"guided\": {\"copies\": {\"layer\": L, \"kv_head\": H}}.")
        if "minutes" not in stage and "steps" not in stage:
            raise SystemExit(f"train.py: {file}: stage {number} has neither 'minutes' nor 'steps': say how long it lasts.")
        if not isinstance(stage["families"], list) or len(stage["families"]) != len(FAMILIES):
            raise SystemExit(f"train.py: {file}: 'families' of stage {number} is {stage['families']}: give a list with a "
                             f"weight for each of {', '.join(FAMILIES)}.")


def read_config(file: Path, minutes: float | None, within: float | None) -> dict:
    """A plan, scaled to `minutes`; only one of minutes can be scaled, then or by Plan.fit() (`within`)."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"train.py: the configuration {file} cannot be read: {error}.") from None
    check_config(config, file)
    if minutes or within:
        if not all("minutes" in stage for stage in config["stages"]):
            raise SystemExit(f"train.py: --minutes and --within scale minutes, and a stage of {file} lasts a number of steps: leave them "
                             "out.")
    if minutes:
        scale = minutes / sum(stage["minutes"] for stage in config["stages"])
        for stage in config["stages"]:
            stage["minutes"] *= scale
    return config


class Plan:
    """Where training stands, and how fast it learns there. A stage lasts `steps` where it has them, else `minutes`."""

    def __init__(self, config: dict):
        self.stages, self.seed = config["stages"], config["seed"]
        self.lr, self.hold = config["lr"], config.get("hold", 0.0)
        self.by_steps = all("steps" in stage for stage in self.stages)
        self.total = 60 * sum(stage.get("minutes", 0) for stage in self.stages)  # seconds, of all stages: fit() knows better
        self.state = {"stage": 0, "batch": 0, "stage_seconds": 0.0, "step": 0, "tokens": 0, "seconds": 0.0}

    def stage_done(self) -> bool:
        stage, s = self.stages[self.state["stage"]], self.state
        return s["batch"] >= stage["steps"] if "steps" in stage else s["stage_seconds"] >= 60 * self.minutes()[s["stage"]]

    def minutes(self) -> list[float]:
        """Of each stage: the plan's, or what fit() made of them, now or before a stop."""
        return self.state.get("minutes") or [stage.get("minutes", 0) for stage in self.stages]

    def same(self, config: dict) -> bool:
        """Whether this plan is that one, or became it by other minutes and shares: of the same seed, with rows and batches of the
        same sizes one after the other."""
        return config["seed"] == self.seed and [(a["T"], a["B"]) for a in config["stages"]] == [(a["T"], a["B"]) for a in self.stages]

    def done(self) -> bool:
        return self.state["stage"] >= len(self.stages)

    def fit(self, seconds: float) -> None:
        """Scales what is left, so that it takes so many seconds, if nothing comes between."""
        now, spent = self.state["stage"], self.state["stage_seconds"] / 60
        minutes = self.minutes()
        left = [max(0.0, minutes[now] - spent), *minutes[now + 1:]]
        scale = max(0.0, seconds) / 60 / max(sum(left), 1e-9)
        fitted = [scale * part for part in left]
        self.state["minutes"] = [*minutes[:now], spent + fitted[0], *fitted[1:]]
        self.total = self.state["seconds"] + max(0.0, seconds)

    def next_stage(self) -> None:
        self.state |= {"stage": self.state["stage"] + 1, "batch": 0, "stage_seconds": 0.0}

    def learning_rate(self, warm_steps: int) -> float:
        """Warm-up over 200 steps (also after a start with a new optimizer), the plan's rate for its share `hold` of the plan, then a
        cosine down to 3 %."""
        if self.by_steps:
            share = self.state["step"] / sum(stage["steps"] for stage in self.stages)
        else:
            share = self.state["seconds"] / self.total
        down = min(1.0, max(0.0, share - self.hold) / (1 - self.hold))
        return self.lr * min(1, (warm_steps + 1) / 200) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * down)))

    def advance(self, seconds: float, tokens: int) -> None:
        s = self.state
        s |= {"batch": s["batch"] + 1, "step": s["step"] + 1, "tokens": s["tokens"] + tokens,
              "seconds": s["seconds"] + seconds, "stage_seconds": s["stage_seconds"] + seconds}
