"""scikit-learn's own checks of an estimator; what must fail is listed with its reason."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from coterie.estimators import (
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateConsensusClassifier,
    PrivateConsensusRegressor,
    PrivateMean,
)
from tests.support import mostly_slow_checks

WEIGHTS = "sample_weight is refused: a weight changes what one record can move, on which the noise rests"
REFUSED = dict.fromkeys(
    (
        "check_sample_weights_pandas_series",
        "check_sample_weights_not_an_array",
        "check_sample_weights_list",
        "check_sample_weights_shape",
        "check_sample_weights_not_overwritten",
        "check_sample_weight_equivalence_on_dense_data",
        "check_all_zero_sample_weights_error",
        "check_classifiers_one_label_sample_weights",
    ),
    WEIGHTS,
)

# one of each kind of check; every fit of another shape compiles its own program
EVERYDAY = {
    "check_parameters_default_constructible",
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_dont_overwrite_attributes",
    "check_dict_unchanged",
    "check_estimators_unfitted",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_fit_idempotent",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_dataframe_column_names_consistency",
    "check_classifiers_train",
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_sample_weights_list",
}

# Ten rounds keep the checks short; a large budget lets those that look at predictions see the data through the noise.
COMMON = {"epsilon": 200.0, "bounds": (-10, 10), "rounds": 10, "graph": "complete", "random_state": 0}
classifier = PrivateConsensusClassifier(**COMMON)
regressor = PrivateConsensusRegressor(target_bounds=(-10, 10), **COMMON)


@pytest.mark.filterwarnings("ignore::coterie.estimators.RepeatedFitWarning", "ignore::coterie.estimators.LabelsWarning")
@mostly_slow_checks(parametrize_with_checks([classifier], expected_failed_checks=lambda _: REFUSED), EVERYDAY)
def test_classifier(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coterie.estimators.RepeatedFitWarning")
@parametrize_with_checks([regressor], expected_failed_checks=lambda _: REFUSED)
def test_regressor(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coterie.estimators.RepeatedFitWarning")
@parametrize_with_checks([PrivateMean(**COMMON)])
def test_mean(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coterie.estimators.RepeatedFitWarning", "ignore::coterie.estimators.LabelsWarning")
@parametrize_with_checks([PrivateAdditiveClassifier(**COMMON)], expected_failed_checks=lambda _: REFUSED)
def test_additive_classifier(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coterie.estimators.RepeatedFitWarning")
@parametrize_with_checks(
    [PrivateAdditiveRegressor(target_bounds=(-10, 10), **COMMON)], expected_failed_checks=lambda _: REFUSED
)
def test_additive_regressor(estimator, check):
    check(estimator)
