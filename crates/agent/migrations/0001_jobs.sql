-- Jobs, whose life is in the crate `longhaul-jobs`. Moments are milliseconds since the Unix epoch. What is JSON is kept as text.
CREATE TABLE jobs (
    id BIGINT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    -- What limits of one place count by: the far end.
    place TEXT NOT NULL,
    request TEXT NOT NULL,
    priority BIGINT NOT NULL,
    state TEXT NOT NULL,
    wish TEXT NOT NULL,
    due BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    in_vain BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    -- The agent that has it, or was the last to: its name, and what tells it from others of that name.
    holder TEXT,
    holder_instance TEXT,
    lease_until BIGINT,
    created BIGINT NOT NULL,
    started BIGINT,
    ended BIGINT,
    progress TEXT,
    report TEXT,
    error TEXT,
    exit_code BIGINT,
    -- Bytes that travelled in all attempts.
    travelled BIGINT NOT NULL,
    -- The number of its last change among those of all jobs.
    change_number BIGINT NOT NULL
);

CREATE INDEX jobs_by_state ON jobs (state, due);
CREATE INDEX jobs_by_change ON jobs (change_number);
CREATE INDEX jobs_by_end ON jobs (ended);

-- What a client called its request, so that one that is sent twice makes one job.
CREATE TABLE request_keys (
    owner TEXT NOT NULL,
    request_key TEXT NOT NULL,
    request TEXT NOT NULL,
    job BIGINT NOT NULL,
    PRIMARY KEY (owner, request_key)
);

CREATE INDEX request_keys_by_job ON request_keys (job);

-- `job` and `change`: the last number given. `chooser`: locked by whoever chooses which jobs run next.
CREATE TABLE counters (
    name TEXT NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);

INSERT INTO counters (name, value) VALUES ('job', 0), ('change', 0), ('chooser', 0);

-- Ends of copies that their owner has given a name.
CREATE TABLE places (
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    root TEXT NOT NULL,
    PRIMARY KEY (owner, name)
);
