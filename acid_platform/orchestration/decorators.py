"""`@acid_asset` and `@acid_multi_asset`: an asset is a table, a materialization a transaction."""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

import dagster as dg

from acid_platform.base.arguments import nearest_name
from acid_platform.errors import AcidError, InvalidDefinition
from acid_platform.handles.transaction import Transaction
from acid_platform.orchestration.checks import Expectation
from acid_platform.orchestration.history import History
from acid_platform.orchestration.inputs import TableInput, Upstream, inputs_of, require_consumable
from acid_platform.orchestration.materialize import PlannedTable, Result, materialize
from acid_platform.orchestration.metadata import TableDeclaration
from acid_platform.orchestration.outputs import AcidOut, Recheck, SchemaMode, WriteMode
from acid_platform.orchestration.partition_keys import PartitionText
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from acid_platform.orchestration.retries import RETRY, again, retried
from acid_platform.transactions import Isolation

if TYPE_CHECKING:
    from acid_platform.orchestration.checks import Given

CONSUMES = "acid/consumes"
"""Metadata of an asset: the tables whose changes it consumes."""

Body: TypeAlias = Callable[..., object]
Inputs: TypeAlias = Mapping[str, TableInput | Upstream]


def acid_asset(
    *,
    table: TableDeclaration | str,
    write_mode: WriteMode = "overwrite",
    key: Sequence[str] = (),
    partition_expr: PartitionText | None = None,
    expectations: Sequence[Given] = (),
    checks: Sequence[Expectation] = (),
    recheck: Recheck | None = None,
    schema_mode: SchemaMode = "error",
    coerce: bool = False,
    isolation: Isolation = "snapshot",
    history: History | None = None,
    ins: Inputs | None = None,
    retry_policy: dg.RetryPolicy | None = RETRY,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Callable[[Body], dg.AssetsDefinition]:
    """Makes the decorated function an asset that fills `table`; the key of table `db.t` is `db/t`.

    The function returns rows of any kind that Table.insert takes, which are written according to
    `write_mode` (see AcidOut); or it takes the parameter `txn` and writes itself. Its other
    parameters are `context`, `config`, resources, and upstream tables, which are read at the
    transaction's snapshot and passed as the annotated type (see TableInput).

    Each run is one transaction, also for a range of partitions if `backfill_policy` is single_run.
    It commits only if all blocking expectations hold for the rows that it would commit; otherwise
    it is aborted, the table stays as it was, and the step fails with the results of the checks.
    After a Transient error, such as a WriteConflict, Dagster retries the step with a new snapshot,
    as `retry_policy` says (None: never). A policy of your own also repeats what the function raises
    itself, as that of any asset. `coerce` converts returned values that do not fit, and
    says so in the metadata. With `isolation="serializable"` it also conflicts with whoever has
    changed what it read (see Warehouse.transaction). `spec` are arguments of dg.AssetSpec.

    Of `expectations`, an item may be a suite of Great Expectations, or the path of
    its JSON file: each expectation in it is a check. Expectations can also be executed without the
    function, on the committed rows, of all partitions unless the run names some. So can `checks`,
    if `recheck` evaluates them: a function of the context and the Table that returns a Finding for
    each.

    Raises InvalidDefinition, when the module is loaded, if the arguments contradict each other.
    """
    _require_spec(spec)
    out = AcidOut(
        table,
        write_mode,
        key,
        partition_expr,
        expectations,
        checks,
        schema_mode,
        recheck,
        spec,
        coerce,
        isolation,
        history,
    )

    return partial(
        _asset,
        outs=[out],
        name="__".join(out.asset_key.path),
        ins=ins,
        retry_policy=retry_policy,
        partitions_def=partitions_def,
        backfill_policy=backfill_policy,
        pool=pool,
        op_tags=op_tags,
        can_subset=bool(expectations or checks) and bool(recheck or not checks),
    )


def acid_multi_asset(
    *,
    outs: Sequence[AcidOut],
    name: str | None = None,
    can_subset: bool = False,
    ins: Inputs | None = None,
    retry_policy: dg.RetryPolicy | None = RETRY,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
) -> Callable[[Body], dg.AssetsDefinition]:
    """`acid_asset` for several tables, which commit together or not at all.

    The decorated function returns a mapping from table name to rows, with an entry for each table
    that it does not write itself. With `can_subset` a run may materialize some of the tables:
    entries of the others are not written. Raises InvalidDefinition.
    """
    twice = {out.name for out in outs if [other.name for other in outs].count(out.name) > 1}
    if twice or not outs:
        raise InvalidDefinition(
            f"outs must name each table once, but names {', '.join(twice)} twice"
            if twice
            else "outs is empty; name at least one table"
        )

    return partial(
        _asset,
        outs=outs,
        name=name,
        ins=ins,
        retry_policy=retry_policy,
        partitions_def=partitions_def,
        backfill_policy=backfill_policy,
        pool=pool,
        op_tags=op_tags,
        can_subset=can_subset,
    )


def _require_spec(spec: Mapping[str, Any]) -> None:
    """Raises InvalidDefinition for a name that neither acid_asset nor dg.AssetSpec takes."""
    names = [
        name
        for function in (acid_asset, dg.AssetSpec.__new__)
        for name in inspect.signature(function).parameters
    ]
    for name in spec:
        if name not in names:
            near = nearest_name(name, names)
            hint = f"did you mean {near}?" if near else "dg.AssetSpec has none either"
            raise InvalidDefinition(f"acid_asset has no argument {name!r}; {hint}")


def _asset(
    body: Body,
    outs: Sequence[AcidOut],
    name: str | None,
    ins: Inputs | None,
    retry_policy: dg.RetryPolicy | None,
    partitions_def: dg.PartitionsDefinition[str] | None,
    backfill_policy: dg.BackfillPolicy | None,
    **options: Any,
) -> dg.AssetsDefinition:
    parameters = _Parameters.of(body, ins, outs[0].declaration.database)
    planned = [
        PlannedTable(out, out.partitioning(partitions_def, parameters.txn), parameters.txn)
        for out in outs
    ]
    consumed = require_consumable(
        parameters.tables,
        parameters.hints,
        partitions_def is not None,
        len(outs) > 1 and bool(options.get("can_subset")),
    )
    marks = {CONSUMES: dg.MetadataValue.json(consumed)} if consumed else {}
    deps = [table_input.dep for table_input in parameters.tables.values()]
    description = inspect.getdoc(body)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # backfill_policy, which the user chose
        return dg.multi_asset(
            specs=[
                out.asset_spec(deps, description).merge_attributes(metadata=marks) for out in outs
            ],
            name=name or body.__name__,
            check_specs=[spec for out in outs for spec in out.check_specs(partitions_def)],
            partitions_def=partitions_def,
            backfill_policy=backfill_policy,
            **options,
        )(_step(body, parameters, planned, retry_policy))


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The parameters of the body, by what they need."""

    context: bool
    txn: bool
    passed: Mapping[str, inspect.Parameter]
    """Resources and config, which Dagster provides under the same names."""
    tables: Mapping[str, TableInput]
    hints: Mapping[str, object]

    @classmethod
    def of(cls, body: Body, ins: Inputs | None, database: str) -> _Parameters:
        hints = {
            name: _hint(body, name, parameter.annotation)
            for name, parameter in inspect.signature(body).parameters.items()
        }
        # Dagster needs resolved annotations, even if the body's module postpones them.
        parameters = {
            name: parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(body).parameters.items()
        }
        own = parameters.keys() - {"context", "txn"}
        passed = {
            name: parameter
            for name, parameter in parameters.items()
            if name in own and (name == "config" or _is_resource(hints[name]))
        }
        inputs = [name for name in parameters if name in own - passed.keys()]
        tables = inputs_of(inputs, ins, database, body.__name__)
        return cls("context" in parameters, "txn" in parameters, passed, tables, hints)


def _hint(body: Body, name: str, annotation: object) -> object:
    """The resolved annotation; None if its name exists only for type checkers.

    That is often so for DataFrame, since assets should not import pyspark at load time.
    """
    if not isinstance(annotation, str):
        return annotation
    annotated = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return get_type_hints(
            annotated, globalns=getattr(body, "__globals__", {}), include_extras=True
        )[name]
    except NameError:
        return None


def _is_resource(hint: object) -> bool:
    if isinstance(hint, type):
        return issubclass(hint, dg.ConfigurableResource | dg.ResourceDefinition)
    marked = getattr(hint, "__metadata__", None)
    return marked is not None and marked == dg.ResourceParam[object].__metadata__  # type: ignore[attr-defined]


def _step(
    body: Body,
    parameters: _Parameters,
    planned: Sequence[PlannedTable],
    retry_policy: dg.RetryPolicy | None,
) -> Callable[..., Iterator[Result]]:
    """The function that Dagster runs; its signature has the resources that the body and we need."""

    def compute(context: dg.AssetExecutionContext, **provided: Any) -> Iterator[Result]:
        warehouse: WarehouseResource = provided["warehouse"]
        spark: SparkResource = provided["spark"]

        def produce(txn: Transaction) -> object:
            arguments = {name: provided[name] for name in parameters.passed}
            if parameters.context:
                arguments["context"] = context
            if parameters.txn:
                arguments["txn"] = txn
            for name, table_input in parameters.tables.items():
                arguments[name] = table_input.load(context, txn, parameters.hints.get(name))
            try:
                return body(**arguments)
            except (AcidError, dg.RetryRequested):
                raise
            except Exception as error:  # nothing is committed before the body has ended
                final = isinstance(error, dg.Failure) and not error.allow_retries
                again(context, None if final or retry_policy is RETRY else retry_policy, error)
                raise

        with retried(context, retry_policy):
            opened = warehouse.open(context.run.run_id, spark)
        opened.notice = context.log.info
        with opened:
            yield from materialize(context, opened, planned, produce, retry_policy)

    ours = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=resource)
        for name, resource in (
            ("warehouse", dg.ResourceParam[WarehouseResource]),
            ("spark", dg.ResourceParam[SparkResource]),
        )
    }
    first = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=dg.AssetExecutionContext
    )
    compute.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [first, *{**ours, **parameters.passed}.values()]
    )
    compute.__name__, compute.__doc__ = body.__name__, body.__doc__
    compute.__module__, compute.__qualname__ = body.__module__, body.__qualname__
    return compute
