"""Every bug of another reader is looked for in both of ours."""

from tests.readers import both_readers as both_readers
