"""Losses: derivatives by finite differences, values by hand, and the properties relied on."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from everyfold.losses import (
    HuberHinge,
    Logistic,
    Loss,
    QuadraticEpsilon,
    SmoothEpsilon,
    Squared,
    SquaredHinge,
    find_loss,
)


def contributed():
    """The loss that CONTRIBUTING.md shows how to add; the steps that follow it there are done here.

    A page whose example fails the tests that it names is of no use.
    """
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    example = page.partition("## Add a loss")[2].partition("```python\n")[2].partition("```")[0]
    names = {"__name__": "contributed"}
    exec(compile(example, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names["Expectile"](tau=0.8)


LOSSES = [
    Squared(),
    QuadraticEpsilon(epsilon=0.3),
    QuadraticEpsilon(epsilon=0.0),
    SmoothEpsilon(epsilon=0.5, h=0.2),
    SmoothEpsilon(epsilon=0.5, h=0.5),
    SmoothEpsilon(epsilon=0.2, h=0.5),
    SmoothEpsilon(epsilon=0.0, h=0.5),
    HuberHinge(h=0.3),
    HuberHinge(h=1.5),
    SquaredHinge(),
    Logistic(),
    contributed(),
]
MARGIN = [loss for loss in LOSSES if loss.is_margin]
SYMMETRIC = [
    loss for loss in LOSSES if isinstance(loss, Squared | QuadraticEpsilon | SmoothEpsilon)
]
PIECEWISE = [loss for loss in LOSSES if loss.is_piecewise_quadratic]

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
values = st.floats(-20, 20)
labels = st.sampled_from([-1.0, 1.0])


def kinks(loss, y):
    """The u at which V'' jumps, for a label of one."""
    match loss:
        case QuadraticEpsilon(epsilon):
            offsets = [-epsilon, epsilon]
        case SmoothEpsilon(epsilon, h):
            offsets = [epsilon - h, epsilon + h, -epsilon - h, -epsilon + h]
        case HuberHinge(h):
            return np.array([y * (1 - h), y * (1 + h)])
        case SquaredHinge():
            return np.array([y])
        case Loss(name="expectile"):
            offsets = [0.0]
        case _:
            return np.array([])
    return y + np.array(offsets)


def smooth_points(loss, y, step):
    u = np.linspace(-4, 4, 801) + 1e-3 * np.pi
    return u[np.all(np.abs(u[:, None] - kinks(loss, y)) > 2 * step, axis=1)]


@every_loss
@pytest.mark.parametrize("y", [-1.0, 1.0])
@pytest.mark.parametrize(("function", "derivative"), [("value", "slope"), ("slope", "curvature")])
def test_derivatives_equal_central_differences(loss, y, function, derivative):
    step = 1e-4
    u = smooth_points(loss, y, step)
    f = getattr(loss, function)
    difference = (f(y, u + step) - f(y, u - step)) / (2 * step)
    assert_allclose(getattr(loss, derivative)(y, u), difference, rtol=1e-6, atol=1e-8)


@every_loss
@given(y=labels, u=values, v=values)
def test_convex_and_above_its_tangents(loss, y, u, v):
    assert loss.value(y, u) >= 0
    assert (loss.slope(y, v) - loss.slope(y, u)) * (v - u) >= 0
    tangent = loss.value(y, u) + loss.slope(y, u) * (v - u)
    assert loss.value(y, v) >= tangent - 1e-12 * max(1.0, abs(tangent))
    assert loss.curvature(y, u) >= 0


@every_loss
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_value_and_slope_are_continuous_at_the_kinks(loss, y):
    u, tiny = kinks(loss, y), 1e-9
    for f in (loss.value, loss.slope):
        assert_allclose(f(y, u - tiny), f(y, u + tiny), atol=1e-8)


@pytest.mark.parametrize("loss", MARGIN, ids=repr)
@given(y=labels, u=values, v=values)
def test_margin_losses_fall_with_the_margin_and_ignore_a_label_flip(loss, y, u, v):
    if y * u <= y * v:
        assert loss.value(y, u) >= loss.value(y, v)
    assert loss.value(y, u) == loss.value(-y, -u)
    assert loss.slope(y, u) == -loss.slope(-y, -u)
    assert loss.curvature(y, u) == loss.curvature(-y, -u)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not loss.is_margin], ids=repr)
@given(y=st.integers(-5, 5), r=st.integers(-40, 40), shift=st.integers(-5, 5))
def test_residual_losses_depend_on_the_residual_only(loss, y, r, shift):
    r = r / 8  # exactly representable, so that the sums below are exact
    for method in (loss.value, loss.slope, loss.curvature):
        assert method(y, y + r) == method(shift, shift + r)


@pytest.mark.parametrize("loss", SYMMETRIC, ids=repr)
@given(r=st.integers(-40, 40))
def test_symmetric_losses_do_not_know_the_sign_of_the_residual(loss, r):
    assert loss.value(0.0, r / 8) == loss.value(0.0, -r / 8)
    assert loss.slope(0.0, r / 8) == -loss.slope(0.0, -r / 8)
    assert loss.curvature(0.0, r / 8) == loss.curvature(0.0, -r / 8)


@pytest.mark.parametrize("loss", PIECEWISE, ids=repr)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_slope_is_linear_on_every_piece(loss, y):
    edges = np.unique(np.concatenate([[-6.0], kinks(loss, y), [6.0]]))
    for left, right in itertools.pairwise(edges):
        u = left + (right - left) * np.array([0.1, 0.5, 0.9])
        steps = loss.curvature(y, u[0]) * (u - u[0])
        assert_allclose(loss.slope(y, u), loss.slope(y, u[0]) + steps, atol=1e-13)


def test_logistic_is_not_piecewise_quadratic():
    assert not Logistic.is_piecewise_quadratic
    assert Logistic().curvature(1.0, 0.0) > Logistic().curvature(1.0, 1.0) > 0


def test_only_the_squared_loss_has_constant_curvature():
    assert {type(loss) for loss in LOSSES if loss.has_constant_curvature} == {Squared}
    assert {type(loss) for loss in MARGIN} == {HuberHinge, SquaredHinge, Logistic}


@pytest.mark.parametrize(
    ("loss", "y", "u", "value", "slope", "curvature"),
    [
        (Squared(), 1.0, 3.0, 4.0, 4.0, 2.0),
        (QuadraticEpsilon(0.5), 1.0, -1.0, 2.25, -3.0, 2.0),
        (QuadraticEpsilon(0.5), 1.0, 1.25, 0.0, 0.0, 0.0),
        (QuadraticEpsilon(0.0), 1.0, 1.0, 0.0, 0.0, 2.0),
        (SmoothEpsilon(1.0, 0.5), 0.0, 1.25, 0.28125, 0.75, 1.0),
        (SmoothEpsilon(1.0, 0.5), 0.0, -1.25, 0.28125, -0.75, 1.0),
        (SmoothEpsilon(1.0, 0.5), 0.0, 4.0, 3.0, 1.0, 0.0),
        (SmoothEpsilon(1.0, 0.5), 0.0, 0.25, 0.0, 0.0, 0.0),
        (SmoothEpsilon(0.0, 0.5), 0.0, 0.25, 0.3125, 0.5, 2.0),
        (SmoothEpsilon(0.5, 0.5), 0.0, 0.0, 0.0, 0.0, 1.0),
        (HuberHinge(0.5), 1.0, 0.75, 0.28125, -0.75, 1.0),
        (HuberHinge(0.5), -1.0, -0.75, 0.28125, 0.75, 1.0),
        (HuberHinge(0.5), 1.0, -3.0, 4.0, -1.0, 0.0),
        (HuberHinge(0.5), 1.0, 3.0, 0.0, 0.0, 0.0),
        (SquaredHinge(), 1.0, -1.0, 4.0, -4.0, 2.0),
        (SquaredHinge(), -1.0, -1.5, 0.0, 0.0, 0.0),
        (Logistic(), -1.0, 0.0, np.log(2), 0.5, 0.25),
    ],
)
def test_values_by_hand(loss, y, u, value, slope, curvature):
    assert_allclose(loss.value(y, u), value, rtol=1e-15)
    assert_allclose(loss.slope(y, u), slope, rtol=1e-15)
    assert_allclose(loss.curvature(y, u), curvature, rtol=1e-15)


@pytest.mark.parametrize(
    ("loss", "u", "is_active"),
    [
        (QuadraticEpsilon(0.5), [-0.5, 0.5, 0.5 + 1e-9], [False, False, True]),
        (SmoothEpsilon(1.0, 0.5), [0.5, 1.5, -0.5, -1.5], [True] * 4),
        (SmoothEpsilon(1.0, 0.5), [0.5 - 1e-9, 1.5 + 1e-9], [False, False]),
        (HuberHinge(0.5), [0.5, 1.5, 0.5 - 1e-9, 1.5 + 1e-9], [True, True, False, False]),
        (SquaredHinge(), [1.0, 1.0 - 1e-9], [False, True]),
    ],
)
def test_active_set_at_the_kinks(loss, u, is_active):
    y = 1.0 if loss.is_margin else 0.0
    assert_array_equal(loss.curvature(y, np.array(u)) > 0, is_active)


@given(y=labels, u=values, h=st.floats(1e-6, 2))
def test_huber_hinge_exceeds_the_hinge_by_at_most_a_quarter_of_h(y, u, h):
    excess = HuberHinge(h).value(y, u) - max(0.0, 1 - y * u)
    assert -1e-14 <= excess <= h / 4 + 1e-14


@pytest.mark.parametrize("h", [0.01, 0.5, 3.0])
def test_huber_hinge_reaches_its_bound_at_the_corner(h):
    assert_allclose(HuberHinge(h).value(1.0, 1.0), h / 4)


@given(r=values, epsilon=st.floats(0, 2), h=st.floats(1e-6, 3))
def test_smooth_epsilon_exceeds_the_insensitive_loss_by_its_bound(r, epsilon, h):
    excess = SmoothEpsilon(epsilon, h).value(0.0, r) - max(0.0, abs(r) - epsilon)
    bound = h / 4 if h <= epsilon else h / 2
    assert -1e-14 <= excess <= bound + 1e-14


@given(r=values, h=st.floats(0.1, 3), share=st.floats(0, 1))
def test_smooth_epsilon_is_the_huberised_corner_when_h_is_below_epsilon(r, h, share):
    epsilon = h + share
    e = abs(r) - epsilon
    expected = 0.0 if e < -h else (e + h) ** 2 / (4 * h) if e <= h else e
    assert_allclose(SmoothEpsilon(epsilon, h).value(0.0, r), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("loss", "same_as"),
    [(QuadraticEpsilon(0.0), Squared()), (HuberHinge(1e-300), HuberHinge(1e-12))],
    ids=repr,
)
def test_limits(loss, same_as):
    u = np.array([-2.0, -0.3, 0.0, 0.4, 5.0])
    y = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    for method in ("value", "slope", "curvature"):
        assert_allclose(getattr(loss, method)(y, u), getattr(same_as, method)(y, u), atol=1e-12)


@pytest.mark.parametrize("m", [-1e4, -800.0, 800.0, 1e4])
def test_logistic_does_not_overflow(m):
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert Logistic().value(1.0, m) == max(0.0, -m)
        assert Logistic().slope(1.0, m) == (-1.0 if m < 0 else pytest.approx(0, abs=1e-300))
        assert Logistic().curvature(1.0, m) == pytest.approx(0, abs=1e-300)


@every_loss
@pytest.mark.parametrize("method", ["value", "slope", "curvature"])
@pytest.mark.parametrize("kinds", [("f4", "f8"), ("f8", "f4"), ("f4", "i8"), ("i8", "i8")])
def test_broadcasts_and_returns_float64(loss, method, kinds):
    y = np.array([[1], [-1], [1]], dtype=kinds[0])
    u = np.arange(-3, 4, dtype=kinds[1])
    result = getattr(loss, method)(y, u)
    assert result.shape == (3, 7)
    assert result.dtype == np.float64
    for i, j in np.ndindex(3, 7):
        assert result[i, j] == getattr(loss, method)(float(y[i, 0]), float(u[j]))


@every_loss
@pytest.mark.parametrize("method", ["value", "slope", "curvature"])
def test_only_margins_of_single_precision_stay_in_it(loss, method):
    y, u = np.float32([[1], [-1], [1]]), np.arange(-3, 4, dtype=np.float32)
    result = getattr(loss, method)(y, u)
    assert loss.is_margin or result.dtype == np.float64
    double = getattr(loss, method)(y.astype(float), u.astype(float))
    assert_allclose(result, double, rtol=1e-6, atol=1e-6)


def test_float32_is_computed_in_float64():
    u = np.array([1e-5], dtype=np.float32)
    assert_array_equal(Squared().value(np.float32([1.0]), u), (1.0 - u.astype(np.float64)) ** 2)


@every_loss
def test_losses_are_immutable_values(loss):
    twin = dataclasses.replace(loss)
    assert twin == loss
    assert hash(twin) == hash(loss)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.h = 1.0


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf, "0.1", None])
@pytest.mark.parametrize("make", [QuadraticEpsilon, SmoothEpsilon])
def test_bad_epsilon_is_refused(make, bad):
    with pytest.raises(ValueError, match=r"epsilon=.* must be a finite number >= 0"):
        make(epsilon=bad)


@pytest.mark.parametrize("bad", [0.0, -0.1, np.nan, np.inf, "0.1", None])
@pytest.mark.parametrize("make", [HuberHinge, SmoothEpsilon])
def test_bad_width_is_refused(make, bad):
    with pytest.raises(ValueError, match=r"^h=.* must be a finite number > 0"):
        make(h=bad)


@pytest.mark.parametrize(
    ("name", "parameters", "loss"),
    [
        ("squared", {}, Squared()),
        ("quadratic_epsilon", {"epsilon": 0.2}, QuadraticEpsilon(0.2)),
        ("smooth_epsilon", {"epsilon": 0.2, "h": 0.1}, SmoothEpsilon(0.2, 0.1)),
        ("huber_hinge", {"h": np.float64(0.1)}, HuberHinge(0.1)),
        ("squared_hinge", {}, SquaredHinge()),
        ("logistic", {}, Logistic()),
        (HuberHinge(0.7), {}, HuberHinge(0.7)),
    ],
)
def test_find_loss(name, parameters, loss):
    assert find_loss(name, **parameters) == loss


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("logistics", {}, r"loss='logistics' is not known; did you mean 'logistic'\?"),
        ("zzz", {}, r"loss='zzz' is not known; It must be one of 'squared', .*'logistic'"),
        (None, {}, "loss=None is not known"),
        ("squared", {"h": 0.1}, "loss='squared' has no parameter 'h'; it takes none"),
        ("huber_hinge", {"epsilon": 1}, "no parameter 'epsilon'; it takes 'h'"),
        (Squared(), {"h": 0.1}, "already carries its parameters, so 'h' cannot"),
        ("huber_hinge", {"h": 0}, "h=0 is not allowed"),
    ],
)
def test_find_loss_says_what_is_wrong(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        find_loss(name, **parameters)


def test_an_incomplete_loss_cannot_be_made():
    class Incomplete(Loss):
        def value(self, y, u):
            return np.zeros(())

    with pytest.raises(TypeError, match="abstract"):
        Incomplete()
