-- Which of the controllers that share the store leads: who led last, and where it answers. Who leads at the moment is said by the lock alone.
CREATE TABLE leaders (
    name TEXT NOT NULL PRIMARY KEY,
    controller TEXT NOT NULL,
    url TEXT,
    since BIGINT NOT NULL
);
