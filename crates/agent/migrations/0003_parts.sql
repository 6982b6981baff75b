-- Parts of a job that is split are jobs of their own. `parent`: the number of the job; `part`: which of its parts, from 1. How many there are says the
-- job's request, which is kept with the job alone.
ALTER TABLE jobs ADD COLUMN parent BIGINT;
ALTER TABLE jobs ADD COLUMN part BIGINT;

CREATE INDEX jobs_by_parent ON jobs (parent, state);
