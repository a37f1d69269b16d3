//! Profiles and medium to a layout plan.
