-- Ends of jobs that are to be told to a URL: written with the end, removed when it was told. Moments are milliseconds since the Unix epoch.
CREATE TABLE notices (
    id TEXT NOT NULL PRIMARY KEY,
    job BIGINT NOT NULL,
    url TEXT NOT NULL,
    -- Who is told, as host and port: no one of them keeps the others waiting.
    authority TEXT NOT NULL,
    -- The job as it was then, in JSON.
    body TEXT NOT NULL,
    created BIGINT NOT NULL,
    -- Times that it was begun to be told.
    attempts BIGINT NOT NULL,
    -- Not before this; while it is being told, when whoever does so is taken to be gone.
    due BIGINT NOT NULL
);

CREATE INDEX notices_by_due ON notices (due);
