"""Three queues on one store, in one seeded loop: their instances die, freeze and are deployed while its calls fail."""
