"""Affines from SpatialData's transformations, against what spatialdata itself makes of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from spatialdata.transformations import Affine, BaseTransformation, Identity, MapAxis, Scale, Sequence, Translation
from spatialdata.transformations.ngff.ngff_transformations import NgffBaseTransformation

from puncta.errors import MetadataError
from puncta.spec.transformations import (
    affines,
    apply_affine,
    compose_affines,
    identity_transformation,
    invert_affine,
    is_identity,
)

AXES = st.sampled_from([("x", "y"), ("x", "y", "z"), ("z", "y", "x"), ("y", "x")])
NUMBER = st.floats(-100, 100, allow_subnormal=False)


@st.composite
def steps(draw: st.DrawFn, axes: tuple[str, ...]) -> BaseTransformation:
    """Draw one transformation that leads from the axes to the same axes, in an order of its own."""
    some = tuple(draw(st.permutations(axes)))[: draw(st.integers(1, len(axes)))]
    inputs, outputs = (tuple(draw(st.permutations(axes))) for _ in range(2))
    matrix = np.eye(len(axes) + 1)
    matrix[:-1] = draw(arrays(np.float64, (len(axes), len(axes) + 1), elements=NUMBER))
    numbers = draw(arrays(np.float64, len(some), elements=NUMBER))
    kinds: list[BaseTransformation] = [
        Identity(),
        Scale(numbers, axes=some),
        Translation(numbers, axes=some),
        MapAxis(dict(zip(inputs, outputs, strict=True))),
        Affine(matrix, input_axes=inputs, output_axes=outputs),
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def declared(draw: st.DrawFn) -> tuple[tuple[str, ...], BaseTransformation]:
    """Draw axes and a transformation over them, possibly a nested sequence."""
    axes = draw(AXES)
    one = steps(axes)
    inner = st.lists(one, min_size=1, max_size=3).map(Sequence)
    return axes, draw(st.one_of(one, st.lists(st.one_of(one, inner), min_size=1, max_size=3).map(Sequence)))


def written(transformation: BaseTransformation, axes: tuple[str, ...]) -> dict[str, Any]:
    """Return a transformation as spatialdata writes it into attributes."""
    declared = transformation.to_ngff(axes, axes, unit="unit", output_coordinate_system_name="here")
    attributes: dict[str, Any] = json.loads(json.dumps(declared.to_dict()))
    return attributes


def system(axes: str) -> dict[str, Any]:
    return {"name": "here", "axes": [{"name": axis} for axis in axes]}


def one(kind: str, inputs: str = "xy", outputs: str = "xy", **values: object) -> list[dict[str, Any]]:
    return [{"type": kind, **values, "input": system(inputs), "output": system(outputs)}]


@given(declared())
def test_matrices_are_those_of_spatialdata(drawn: tuple[tuple[str, ...], BaseTransformation]) -> None:
    axes, transformation = drawn
    ours = affines([written(transformation, axes)], axes)["here"]
    assert np.allclose(ours, transformation.to_affine_matrix(axes, axes)[:-1], rtol=1e-9, atol=1e-6)


def test_measured_elements_agree_with_spatialdata(shared_data: Path) -> None:
    paths = [*shared_data.glob("*sdata/*.zarr/*/*/.zattrs"), *shared_data.glob("*blobs/*.zarr/*/*/.zattrs")]
    compared = 0
    for path in paths:
        attrs = json.loads(path.read_text())
        for entry in attrs.get("multiscales", [attrs])[0].get("coordinateTransformations", []):
            order = tuple(axis["name"] for axis in entry["input"]["axes"] if axis["name"] != "c")
            oracle = BaseTransformation.from_ngff(NgffBaseTransformation.from_dict(entry))
            ours = affines([entry], order)[entry["output"]["name"]]
            assert np.allclose(ours, oracle.to_affine_matrix(order, order)[:-1])
            compared += 1
    assert compared > 10


def test_the_xenium_points_are_scaled_in_the_order_asked(shared_data: Path) -> None:
    (path,) = shared_data.glob("xenium_breast_points_sdata/*.zarr/points/transcripts/.zattrs")
    matrix = affines(json.loads(path.read_text())["coordinateTransformations"], ("z", "y", "x"))["global"]
    assert matrix.tolist() == [[1, 0, 0, 0], [0, 4.705882352941177, 0, 0], [0, 0, 4.705882352941177, 0]]


def test_an_axis_that_is_not_mentioned_stays() -> None:
    matrix = affines(one("scale", "yx", "yx", scale=[2, 3]), ("x", "y", "z"))["here"]
    assert np.array_equal(matrix, [[3, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0]])


def test_channels_are_left_out() -> None:
    affine = [[1.0, 0.0, 0.0, 9.0], [7.0, 0.0, 2.0, 5.0], [7.0, 3.0, 0.0, 6.0]]
    matrix = affines(one("affine", "cyx", "cxy", affine=affine), ("x", "y"))["here"]
    assert np.array_equal(matrix, [[2, 0, 5], [0, 3, 6]])


def test_steps_of_a_sequence_may_leave_out_their_axes() -> None:
    inner = [{"type": "translation", "translation": [1, 2]}, {"type": "scale", "scale": [10, 100]}]
    matrix = affines(one("sequence", "yx", "yx", transformations=inner), ("x", "y"))["here"]
    assert np.array_equal(matrix, [[100, 0, 200], [0, 10, 10]])


def test_axes_that_pass_through_another_name_come_back() -> None:
    inner = [{"type": "mapAxis", "mapAxis": {"z": "x"}}, {"type": "mapAxis", "mapAxis": {"x": "y", "y": "z"}}]
    matrix = affines(one("sequence", transformations=inner), ("x", "y"))["here"]
    assert np.array_equal(matrix, [[0, 1, 0], [1, 0, 0]])


def test_every_coordinate_system_has_its_matrix() -> None:
    found = affines([identity_transformation(("x", "y"), "global"), *one("scale", scale=[2, 2])], ("x", "y"))
    assert list(found) == ["global", "here"]
    assert is_identity(found["global"])
    assert not is_identity(found["here"])


@pytest.mark.parametrize("axes", [("x", "y"), ("x", "y", "z")])
def test_the_identity_is_written_as_spatialdata_writes_it(axes: tuple[str, ...]) -> None:
    theirs = Identity().to_ngff(axes, axes, unit="unit", output_coordinate_system_name="global").to_dict()
    assert json.dumps(identity_transformation(axes, "global")) == json.dumps(theirs)


@pytest.mark.parametrize("kind", ["byDimension", "displacements", "rotation", None])
def test_a_type_that_is_no_affine_is_named(kind: str | None) -> None:
    with pytest.raises(MetadataError, match=f"type {kind!r} cannot be expressed"):
        affines([{"type": "sequence", "output": system("xy"), "transformations": [{"type": kind}]}], ("x", "y"))


@pytest.mark.parametrize(
    ("transformation", "words"),
    [
        (one("scale", scale=[1, 2, 3]), "not of 2 finite numbers"),
        (one("scale"), "not of 2 finite numbers"),
        (one("scale", scale=["a", "b"]), "not made of numbers"),
        (one("translation", translation=[1, float("nan")]), "finite"),
        (one("affine", affine=[[1, 0, 0]]), "2 x 3"),
        (one("mapAxis", mapAxis={"x": "z"}), r"x from z"),
        (one("mapAxis"), "needs an object"),
        (one("sequence", transformations=[]), "needs a list"),
        (one("sequence", transformations=["identity"]), "needs a list"),
        ([{"type": "identity"}], "output"),
        ([{"type": "identity", "input": {"axes": ["x"]}, "output": system("x")}], "name"),
    ],
)
def test_a_malformed_transformation_is_refused_in_words(transformation: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(MetadataError, match=words):
        affines(transformation, ("x", "y"))


@given(
    matrix=arrays(np.float64, (3, 4), elements=NUMBER),
    points=arrays(np.float32, (3, 5), elements=st.floats(0, 9, width=32)),
)
def test_sums_run_from_left_to_right_and_are_never_fused(
    matrix: NDArray[np.float64], points: NDArray[np.float32]
) -> None:
    found = apply_affine(matrix, list(points))
    for row, values in zip(matrix.tolist(), found, strict=True):
        plain = [x * row[0] + y * row[1] + z * row[2] + row[3] for x, y, z in points.astype(float).T.tolist()]
        assert values.tolist() == plain


def test_coordinates_of_another_number_than_the_axes_are_refused() -> None:
    with pytest.raises(MetadataError, match="3 coordinate arrays"):
        apply_affine(np.eye(2, 3), [np.zeros(1)] * 3)


@given(arrays(np.float64, (2, 3), elements=NUMBER), arrays(np.float64, (2, 3), elements=NUMBER))
def test_composing_is_applying_one_after_the_other(first: NDArray[np.float64], second: NDArray[np.float64]) -> None:
    points = [np.arange(5.0), np.arange(5.0) ** 2]
    composed = apply_affine(compose_affines(second, first), points)
    assert np.allclose(composed, apply_affine(second, apply_affine(first, points)), rtol=1e-9, atol=1e-6)


def test_composing_changes_neither_matrix() -> None:
    first, second = np.eye(2, 3), np.array([[2.0, 0.0, 1.0], [0.0, 2.0, 1.0]])
    compose_affines(second, first)
    assert is_identity(first)
    assert second.tolist() == [[2, 0, 1], [0, 2, 1]]


def test_the_inverse_undoes_a_rotation_with_translation() -> None:
    cosine, sine = np.cos(np.pi / 6), np.sin(np.pi / 6)
    turned = np.array([[cosine, -sine, 10.0], [sine, cosine, -3.0]])
    assert np.allclose(compose_affines(invert_affine(turned), turned), np.eye(2, 3), atol=1e-12)


def test_an_affine_that_flattens_has_no_inverse() -> None:
    with pytest.raises(MetadataError, match="cannot be inverted"):
        invert_affine(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]))
