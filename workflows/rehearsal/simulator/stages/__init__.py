"""The parts of the simulator that play one stage of the bring-up each, found by the name of the stage."""
