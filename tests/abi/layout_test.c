/* Sizes, offsets and numbers of include/ebb/ebb.h against layout.inc. A field that layout.inc does not list shows as a
 * gap: the structs have no padding, so each field begins where the one before it ends. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "ebb/ebb.h"

_Static_assert(sizeof(void *) == 8, "layout.inc describes 64-bit systems");

typedef struct row {
    const char *structure;
    const char *field; /* null: the struct itself */
    size_t listed_offset, listed_size, offset, size;
} row;

#define EBB_FIELD(s, f, offset_bytes, size_bytes) \
    {#s, #f, offset_bytes, size_bytes, offsetof(s, f), sizeof(((s *)0)->f)},
#define EBB_STRUCT(s, size_bytes) {#s, NULL, 0, size_bytes, 0, sizeof(s)},
#define EBB_VALUE(name, value)
static const row k_rows[] = {
#include "layout.inc"
};
#undef EBB_FIELD
#undef EBB_STRUCT
#undef EBB_VALUE

typedef struct value_row {
    const char *name;
    uint64_t listed, value;
} value_row;

#define EBB_FIELD(s, f, offset_bytes, size_bytes)
#define EBB_STRUCT(s, size_bytes)
#define EBB_VALUE(name, value) {#name, (uint64_t)(value), (uint64_t)(name)},
static const value_row k_values[] = {
#include "layout.inc"
};

static int check_row(const row *r, size_t expected_offset) {
    const char *field = r->field == NULL ? "(whole)" : r->field;
    if (r->offset != r->listed_offset || r->size != r->listed_size) {
        printf("%s %s: offset %zu size %zu, layout.inc says offset %zu size %zu\n", r->structure, field, r->offset,
               r->size, r->listed_offset, r->listed_size);
        return 1;
    }
    if ((r->field == NULL ? r->size : r->offset) != expected_offset) {
        printf("%s: %zu bytes before %s are in no field that layout.inc lists\n", r->structure,
               (r->field == NULL ? r->size : r->offset) - expected_offset, field);
        return 1;
    }
    return 0;
}

int main(void) {
    int faults = 0;
    size_t structs = 0;
    size_t end = 0;
    for (size_t i = 0; i < sizeof(k_rows) / sizeof(k_rows[0]); ++i) {
        const row *r = &k_rows[i];
        faults += check_row(r, end);
        structs += r->field == NULL;
        end = r->field == NULL ? 0 : r->offset + r->size;
        if (r->field != NULL && r->offset == 0 && strcmp(r->structure, "ebb_allocator") != 0 &&
            strcmp(r->field, "struct_size") != 0) {
            printf("%s does not start with struct_size\n", r->structure);
            ++faults;
        }
    }
    for (size_t i = 0; i < sizeof(k_values) / sizeof(k_values[0]); ++i) {
        if (k_values[i].listed != k_values[i].value) {
            printf("%s is %llu, layout.inc says %llu\n", k_values[i].name, (unsigned long long)k_values[i].value,
                   (unsigned long long)k_values[i].listed);
            ++faults;
        }
    }
    printf("%zu structs, %zu values, %d faults\n", structs, sizeof(k_values) / sizeof(k_values[0]), faults);
    return faults == 0 ? 0 : 1;
}
