"""The Initiator's decision, the Worker's plan and the Cleaner's plan: pure functions of values."""

from acid_platform.compaction.cleaner import (
    CleaningKind,
    CleaningPlan,
    Kept,
    Removal,
    no_cleanup,
    plan_cleaning,
)
from acid_platform.compaction.initiator import (
    Candidate,
    Decision,
    EntitySize,
    LiveDirectory,
    PastCompaction,
    Thresholds,
    check,
    decide,
    entity_size,
    no_auto_compaction,
)
from acid_platform.compaction.plan import (
    BucketInputs,
    CompactionPlan,
    InputFile,
    NothingToDo,
    minor_refused,
    plan_compaction,
)
from acid_platform.compaction.states import CompactionKind, CompactionState, Layout
from acid_platform.compaction.validation import Measure, Profile, combine, compare

__all__ = [
    "BucketInputs",
    "Candidate",
    "CleaningKind",
    "CleaningPlan",
    "CompactionKind",
    "CompactionPlan",
    "CompactionState",
    "Decision",
    "EntitySize",
    "InputFile",
    "Kept",
    "Layout",
    "LiveDirectory",
    "Measure",
    "NothingToDo",
    "PastCompaction",
    "Profile",
    "Removal",
    "Thresholds",
    "check",
    "combine",
    "compare",
    "decide",
    "entity_size",
    "minor_refused",
    "no_auto_compaction",
    "no_cleanup",
    "plan_cleaning",
    "plan_compaction",
]
