"""What of a step is tried again, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from acid_platform.errors import OutcomeUnknown, Transient

RETRY = dg.RetryPolicy(
    max_retries=3, delay=1, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)
"""Retries after Transient errors such as a WriteConflict; each retry has a new snapshot."""


@contextmanager
def retried(context: dg.AssetExecutionContext, policy: dg.RetryPolicy | None) -> Iterator[None]:
    """Transient errors of the block become dg.RetryRequested while the policy allows a retry.

    OutcomeUnknown never does. The block must not have committed anything when it raises.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except Transient as error:
        again(context, policy, error)
        raise


def again(
    context: dg.AssetExecutionContext, policy: dg.RetryPolicy | None, error: Exception
) -> None:
    """Raises dg.RetryRequested for the error, unless the policy allows no further attempt."""
    attempt = context.retry_number + 1
    if policy is None or attempt > policy.max_retries:
        return
    context.log.warning(
        f"nothing was committed ({type(error).__name__}: {error}); retry {attempt} of"
        f" {policy.max_retries} starts with a new snapshot"
    )
    seconds = max(0, policy.calculate_delay(attempt))
    raise dg.RetryRequested(policy.max_retries, seconds) from error
