"""An idle node that Slurm's backfill keeps for a job is usable, although sinfo shows it as planned alone."""

import pytest

from steps.stages.shared import gate_slurm_states
from steps.stages.slurm import reader


@pytest.mark.parametrize("word", ["planned", "plnd", "idle-", "planned*"])
def test_a_planned_node_is_idle(word: str) -> None:
    states = reader.states(word)
    assert states[:2] == ("idle", "planned")
    assert (gate_slurm_states.state(states) is None) == ("*" not in word)
