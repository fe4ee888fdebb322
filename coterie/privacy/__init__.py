"""What a message costs: events, accountants, calibration, schedules, samplers, ledger."""
