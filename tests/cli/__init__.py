"""Tests of the command line against real servers."""
