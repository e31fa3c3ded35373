"""Tests for bugs of other readers run with both of ours."""

from tests.readers import all_readers as all_readers
