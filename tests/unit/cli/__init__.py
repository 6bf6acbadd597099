"""Tests of the command line without servers."""
