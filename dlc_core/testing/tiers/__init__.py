"""The tiers of the conformance kit: one class of tests for each."""
