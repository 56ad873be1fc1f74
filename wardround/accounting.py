"""Accountants, events and moments, for privacy researchers. Needs no extra.

Accountants
    ClassicalAccountant, BayesianAccountant, AveragedAccountant, IndividualFilter and Odometer compose steps into a
    Guarantee. A Guarantee holds at a Level, by a Definition, in a Relation and against an Observer. BayesianSpec,
    EstimateSpec, FilterSpec and GaussianFilterSpec fix what must be chosen before the first step. A Reservation sets
    the cost of a step aside before the step is taken.

Events
    ClassicalAccountant composes every Event. GaussianEvent, DiscreteGaussianEvent, LaplaceEvent, DiscreteLaplaceEvent,
    ZCDPEvent, PairEvent and NothingEvent are single mechanisms. PoissonSampledEvent, SelfComposedEvent and
    ComposedEvent contain other events. to_dp_accounting and from_dp_accounting translate them. ledger_events and
    budget_events return the ReleasedEvents of a study.

Curves
    A PrivacyProfile has δ at many ε, and the errors of a test of membership. gaussian_delta and mu_from_epsilon are for
    Gaussian differential privacy.

Moments
    log_moment, replace_one_moment and subsampled_moment give the cost of one step for a GaussianPair, a LaplacePair, a
    FinitePair, an OutcomePair or a RandomisedResponse. upper_mean and binary_upper_mean bound the mean of a population
    by a sample. epsilon_from_moments, delta_from_moments, epsilon_delta_curve, largest_moment, group, percentile_delta,
    population_fraction, posterior_bounds and attack_success convert sums of moments. fit_distance bounds the effect of
    one record on a fitted model.

Planning
    A Plan has LimitPlan, BayesianPlan and HistogramRelease as its parts. PlanError says why a plan is impossible.
    tightest chooses how a plan keeps its classical limits.
    forecast predicts how a study goes and returns a Forecast with a LimitForecast for each limit. least_noise,
    most_rounds, least_epsilon and best_orders find one number of a plan. signal_to_noise returns a SignalToNoise, the
    size of a hospital's update beside the noise. calibrate_noise, most_steps, prospect and smallest_population find one
    number of a training. Unreachable says that no number is enough.

Errors
    AccountingError is the base of EstimatorRefused, InvalidArgument, LimitExceeded, MaxStepsExceeded and
    ReservationClosed.
"""

from wardround.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
