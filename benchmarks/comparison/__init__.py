"""What comparisons with other table formats share: rows, statements, answers, processes, driver."""
