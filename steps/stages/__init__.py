"""Stages of a bring-up and of a node-image build: each folder holds the types, probes and gates of one stage."""
