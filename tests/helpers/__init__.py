"""What tests share: tables, models, faults, engines that are not ours."""
