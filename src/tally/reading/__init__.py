"""Reading what was counted, for commands, pages and exports. Changes nothing."""
