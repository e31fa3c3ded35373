"""Tests for bugs of other readers run with both of ours."""

from tests.readers import both_readers as both_readers
