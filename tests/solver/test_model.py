from __future__ import annotations

import time

import numpy as np
import pytest

from apportion.solver import Axis, ModelBuilder, ModelError

pytestmark = pytest.mark.quick


def builder_with_x(count=2, **options):
    builder = ModelBuilder("m")
    return builder, builder.columns("x", count, **options)


def test_indices_come_in_the_given_shape_and_follow_each_other():
    builder, x = builder_with_x((2, 3))
    y = builder.columns("y", 2)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert y.tolist() == [6, 7]
    r = builder.rows("r", 2, row=np.arange(2)[:, None], column=x, value=1.0)
    assert r.tolist() == [0, 1]


def test_repeated_places_are_summed_in_rows_and_objectives():
    builder, _ = builder_with_x()
    builder.rows("r", 1, row=[0, 0, 0], column=[1, 1, 0], value=[2.0, 3.0, 1.0], upper=4.0)
    builder.objective("o", column=[0, 0], value=[1.0, 4.0])
    model = builder.build()
    assert model.matrix.toarray().tolist() == [[1.0, 5.0]]
    assert model.objectives[0].cost.tolist() == [5.0, 0.0]


def test_entries_that_cancel_are_not_stored():
    builder, _ = builder_with_x()
    builder.rows("r", 1, row=[0, 0], column=[1, 1], value=[2.0, -2.0], upper=4.0)
    builder.objective("o", column=[0], value=[1.0])
    assert builder.build().values.size == 0


def test_dense_axes_name_members_by_their_labels():
    builder = ModelBuilder("m")
    axes = (Axis("job", ["job17", "job3"]), Axis("type", ["A100", "V100"]))
    x = builder.columns("x", (2, 2), axes=axes)
    builder.columns("level", 1)
    builder.rows("cap", 2, row=[[0, 1]], column=x, value=1.0, upper=1.0, axes=axes[1:])
    builder.objective("o", column=x, value=1.0)
    model = builder.build()
    assert model.column_name(2) == "x[job3,A100]"
    assert model.row_name(1) == "cap[V100]"
    assert model.column_names()[-2:] == ["x[job3,V100]", "level"]
    assert model.row_names() == ["cap[A100]", "cap[V100]"]


def test_option_lists_name_members_by_codes():
    builder = ModelBuilder("m")
    job = Axis("job", ["a", "b"], np.array([0, 1, 1]))
    kind = Axis("type", ["T4", "P4"], np.array([1, 0, 1]))
    x = builder.columns("x", 3, axes=(job, kind))
    builder.columns("none", 0)
    builder.columns("grid", (2, 2))
    builder.objective("o", column=x, value=1.0)
    model = builder.build()
    assert model.column_names() == [
        *("x[a,P4]", "x[b,T4]", "x[b,P4]"),
        *("grid[0,0]", "grid[0,1]", "grid[1,0]", "grid[1,1]"),
    ]
    assert [model.column_name(i) for i in range(7)] == model.column_names()


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((Axis("job", ["a"]),), "labels"),
        ((Axis("job", ["a"], np.array([0, 1])),), r"codes\[1\] = 1"),
        ((Axis("job", ["a"], np.array([0])),), "1 codes for 2 entries"),
        ((Axis("job", ["a", "b"]), Axis("type", ["a"], np.array([0, 0]))), "every axis"),
    ],
)
def test_axes_that_do_not_fit_are_refused(axes, message):
    with pytest.raises(ModelError, match=message):
        builder_with_x(2, axes=axes)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"lower": [0.0, np.nan]}, r"x\[1\].*nan"),
        ({"upper": [np.nan, 1.0]}, r"x\[0\].*nan"),
        ({"lower": 2.0}, r"x\[0\]: \[2.0, 1.0\]"),
        ({"upper": 1e25}, r"1e\+25"),
        ({"lower": np.inf, "upper": np.inf}, "usable interval"),
        ({"upper": np.inf}, "unbounded"),
        ({"lower": -np.inf}, "unbounded"),
    ],
)
def test_bad_bounds_are_refused_by_name(bounds, message):
    builder, x = builder_with_x(2, **bounds)
    builder.objective("o", column=x, value=1.0)
    with pytest.raises(ModelError, match=message):
        builder.build()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e16])
def test_bad_coefficients_are_refused_by_name(bad):
    builder, x = builder_with_x()
    builder.rows("cap", 1, row=0, column=x, value=[1.0, bad], upper=1.0)
    builder.objective("o", column=x, value=1.0)
    with pytest.raises(ModelError, match=r"row cap, column x\[1\]"):
        builder.build()
    builder, x = builder_with_x()
    builder.objective("gain", column=x, value=[bad, 1.0])
    with pytest.raises(ModelError, match=r"objective gain, column x\[0\]"):
        builder.build()


@pytest.mark.parametrize(
    "sides", [{"lower": np.nan}, {"lower": 2.0, "upper": 1.0}, {"upper": -np.inf}]
)
def test_bad_sides_are_refused_by_name(sides):
    builder, x = builder_with_x()
    builder.rows("cap", 1, row=0, column=x, value=1.0, **sides)
    builder.objective("o", column=x, value=1.0)
    with pytest.raises(ModelError, match="row cap"):
        builder.build()


def test_indices_out_of_range_are_refused_where_they_are_given():
    builder, x = builder_with_x()
    with pytest.raises(ModelError, match=r"rows r: column\[1\] = 2: there are 2"):
        builder.rows("r", 1, row=0, column=[0, 2], value=1.0)
    with pytest.raises(ModelError, match=r"rows r: row\[0\] = -1"):
        builder.rows("r", 1, row=-1, column=x, value=1.0)
    with pytest.raises(ModelError, match=r"objective o: column\[0\] = 9"):
        builder.objective("o", column=[9], value=1.0)
    with pytest.raises(ModelError, match="integers"):
        builder.objective("o", column=[0.0], value=1.0)


def test_shapes_that_do_not_fit_are_refused():
    builder, x = builder_with_x()
    with pytest.raises(ModelError, match="do not fit"):
        builder.rows("r", 1, row=0, column=x, value=[1.0, 2.0, 3.0])
    with pytest.raises(ModelError, match="lower has shape"):
        builder.columns("y", 2, lower=[0.0, 0.0, 0.0])
    with pytest.raises(ModelError, match="negative length"):
        builder.columns("y", -1)


def test_names_of_families_and_objectives_are_needed_and_unique():
    builder, x = builder_with_x()
    with pytest.raises(ModelError, match="taken"):
        builder.columns("x", 1)
    with pytest.raises(ModelError, match="no objective"):
        builder.build()
    builder.objective("o", column=x, value=1.0, offset=np.nan)
    with pytest.raises(ModelError, match="offset"):
        builder.build()


def test_arrays_of_a_model_cannot_be_written(dense_model):
    model = dense_model(rows=[[1.0, 1.0]], row_upper=1.0, cost=[1.0, 1.0])
    for array in (model.lower, model.values, model.row_upper, model.objectives[0].cost):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0


def test_derived_models_share_everything_else(dense_model):
    model = dense_model(
        rows=[[1.0, 0.0]], row_upper=1.0, integer=True, cost=[1.0, 2.0], more=(([0, 1], True),)
    )
    assert model.relaxed().is_lp
    assert not model.is_lp
    assert [o.name for o in model.single(1).objectives] == ["next0"]
    longer = model.with_row("extra", np.array([0.0, 3.0]), -1.0, 6.0)
    assert longer.matrix.toarray().tolist() == [[1.0, 0.0], [0.0, 3.0]]
    assert longer.row_names() == ["r", "extra"]
    assert model.row_count == 1


def test_thousands_of_jobs_are_built_in_milliseconds():
    jobs, kinds = 4000, 8
    gang = np.random.default_rng(0).choice([1, 2, 4, 8], jobs)
    spent = []
    for _ in range(3):
        started = time.process_time()
        builder, x = builder_with_x((jobs, kinds), integer=True)
        one, kind = np.arange(jobs)[:, None], np.arange(kinds)[None, :]
        builder.rows("one", jobs, row=one, column=x, value=1.0, upper=1.0)
        builder.rows("cap", kinds, row=kind, column=x, value=gang[:, None], upper=125.0)
        builder.objective("busy", column=x, value=gang[:, None], maximise=True)
        model = builder.build()
        spent.append(time.process_time() - started)
    assert model.values.size == 64_000
    assert min(spent) < 0.05
