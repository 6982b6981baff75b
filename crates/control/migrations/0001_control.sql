-- What a controller keeps. Moments are milliseconds since the Unix epoch. What is JSON is kept as text.
CREATE TABLE counters (
    name TEXT NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('measurement', 0), ('series', 0), ('transfer', 0), ('change', 0), ('registration', 0), ('retention', 0);

CREATE TABLE principals (
    key TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    created BIGINT NOT NULL
);
CREATE TABLE principal_roles (
    key TEXT NOT NULL REFERENCES principals (key) ON DELETE CASCADE,
    role TEXT NOT NULL,
    PRIMARY KEY (key, role)
);
-- Roles that an operator made, beside those that are always there.
CREATE TABLE roles (
    name TEXT NOT NULL PRIMARY KEY,
    rights TEXT NOT NULL
);

-- The map as the operator put it there: one row, once there is one.
CREATE TABLE maps (
    name TEXT NOT NULL PRIMARY KEY,
    content TEXT NOT NULL
);
-- What each depot said of itself last.
CREATE TABLE registrations (
    key TEXT NOT NULL PRIMARY KEY,
    content TEXT NOT NULL
);

-- A quantity of a path as one reporter tells it.
CREATE TABLE series (
    id BIGINT NOT NULL PRIMARY KEY,
    reporter TEXT NOT NULL,
    from_end TEXT NOT NULL,
    to_end TEXT NOT NULL,
    quantity TEXT NOT NULL,
    UNIQUE (reporter, from_end, to_end, quantity)
);
CREATE TABLE measurements (
    -- In the order in which they were kept.
    number BIGINT NOT NULL PRIMARY KEY,
    series BIGINT NOT NULL,
    at BIGINT NOT NULL,
    value DOUBLE PRECISION NOT NULL,
    source TEXT NOT NULL,
    conditions TEXT,
    UNIQUE (series, at)
);
-- Measurements that are old, brought together; `span` is in seconds.
CREATE TABLE summaries (
    series BIGINT NOT NULL,
    span BIGINT NOT NULL,
    at BIGINT NOT NULL,
    count BIGINT NOT NULL,
    least DOUBLE PRECISION NOT NULL,
    mean DOUBLE PRECISION NOT NULL,
    greatest DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (series, span, at)
);

CREATE TABLE transfers (
    number BIGINT NOT NULL PRIMARY KEY,
    reporter TEXT NOT NULL,
    id TEXT NOT NULL,
    content TEXT NOT NULL,
    kept BIGINT NOT NULL,
    UNIQUE (reporter, id)
);

-- What requests with an idempotency key were answered.
CREATE TABLE request_keys (
    principal TEXT NOT NULL,
    request_key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    answer TEXT NOT NULL,
    kept BIGINT NOT NULL,
    PRIMARY KEY (principal, request_key)
);
CREATE INDEX request_keys_by_age ON request_keys (kept);
CREATE INDEX summaries_by_age ON summaries (span, at);
